"""The four stacks of a deployment and the settings that shape them: wiring only, no resource is described here."""
