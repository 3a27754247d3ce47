"""The four stacks of a deployment and the settings that shape them.

They only wire constructs, and describe no resource.
"""
