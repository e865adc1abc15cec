"""Structured output: what is asked is checked in the front end, compiled in worker processes, and
applied as masks.  Which grammars there are, backends of the kind `structured_output` say."""
