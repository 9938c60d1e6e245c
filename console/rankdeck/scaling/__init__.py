"""How a job scales: plan of a study, laws, judgement. No I/O."""
