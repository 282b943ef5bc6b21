"""Jobs: a database is the truth, and instances that compete for it run them.

    program ──submit──► job, job_params ◄──claim, finish── instance ──► threads, one event loop
                              ▲
                              └──── operate: command line, console

`states.py` decides, `store.py` and `instances.py` are the SQL of a job's life and of who runs jobs,
`operate.py` is what operators see and do, `worker.py` is an instance, and `jobs.py` is what
programs use. `slots.py` is the SQL of limits, `batches.py` of batches. `timetable.py` decides when
schedules submit jobs, `schedules.py` is the SQL of that.
A run is a job under a token: whoever acts under an older one is refused.
"""
