"""What is kept of a run, live or modelled: a folder that programs and people can read years later.

    RUN/run.json        what was asked, where and with what it ran, the figures and the verdicts
    RUN/series.json     how it went, window by window, and what happened when
    RUN/kpi, latency    Parquet, live runs only: see docs/simulation.md

document.py holds the types, folder.py the files, verdicts.py judges figures by expectations.
"""
