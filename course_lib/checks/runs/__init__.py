"""The middle part of each check: it runs beside the learner's code and knows nothing of what would be right."""
