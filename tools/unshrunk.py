"""A plugin of pytest for mutants.py: it asks only whether a property fails, and the smallest example takes minutes."""

from hypothesis import Phase, settings

settings.register_profile("unshrunk", phases=(Phase.explicit, Phase.generate))
settings.load_profile("unshrunk")
