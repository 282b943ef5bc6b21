"""Reading a log: what a reader has, what it misses, and how it asks for that.

`reader` is the machine of a live subscriber, one for each log; `log_reader` gives a part of a log
to programs that keep their own place. Both ask by `log_requests`. `message` is what users get.
"""
