"""Reports to give to others: an archive or page of a job; a page and
files for programs of an acceptance run.
"""
