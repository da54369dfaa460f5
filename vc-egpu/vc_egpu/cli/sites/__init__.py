"""One question to many clusters at once, and their answers as one."""
