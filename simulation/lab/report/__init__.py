"""What became of runs, for people: one page per run, a picture, a verdict, a comparison.

A page is one file that needs nothing else: no network, no other files, no script to be read (a
short one shows values under the pointer). It is made of what is kept of a run (`lab/archive`)
and of nothing else, so it can be made again years later, also of a run that was interrupted.

    page.py         a run as HTML                 terminal.py     its verdict as text
    picture.py      a run as PNG                  comparison.py   several runs as HTML

Below these: figures.py knows what figures are called, columns.py how a run went, in columns,
marks.py what happened in it, story.py what was asked, outcome.py what came of it; charts.py draws
on plot.py, which knows axes; parts.py has tables and the like, markup.py escapes.
"""
