"""What model providers want of tools and results, and how their calls become ours again.

`names` is the one place where a name is made safe for them; `schemas` makes schemas that they
accept; `content` is what a result says; `openai` and `anthropic` are the two forms.
"""
