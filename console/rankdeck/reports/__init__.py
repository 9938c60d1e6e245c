"""Reports to hand on: of a job an archive or a page, of an acceptance run pages and files for other programs."""
