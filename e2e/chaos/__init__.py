"""Hours of faults over real processes, by one command: `python -m e2e.chaos --seconds 600 --seed 7`.

`site.py` is what runs, `faults.py` what is done to it, `work.py` the clients and what must be true of them,
`timeline.py` what happened and when, `page.py` shows it to people.
"""
