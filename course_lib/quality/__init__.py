"""What a smaller cache costs: a model that answers exactly, a needle for SmolLM2, and measures of two runs' difference.

The one idea: quality is a number with an interval and a count of samples, measured on the cache itself: texts are read
through it as a prompt and then token by token, so that what it forgets or rounds away shows.
"""
