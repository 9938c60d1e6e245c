"""Reports to give to others: an archive or page for a job; a page and files for other programs for an acceptance run."""
