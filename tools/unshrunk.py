"""A plugin of pytest for mutants.py: it does not shrink examples, which takes minutes; only the failure matters."""

from hypothesis import Phase, settings

settings.register_profile("unshrunk", deadline=None, phases=(Phase.explicit, Phase.generate))
settings.load_profile("unshrunk")
