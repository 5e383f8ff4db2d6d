"""A file of one group of scenarios/, read on its own: for what needs a part and runs no cell."""

from omegaconf import DictConfig, OmegaConf

from harness.paths import ROOT


def read_choice(group: str, name: str) -> DictConfig:
    """The file over those of its group that its `defaults` name; references stay as they are."""
    own = OmegaConf.load(ROOT / "scenarios" / group / f"{name}.yaml")
    assert isinstance(own, DictConfig)
    below = [str(entry) for entry in own.pop("defaults", ()) if entry != "_self_"]
    whole = OmegaConf.merge(
        *(read_choice(group, entry.removesuffix("@_here_")) for entry in below), own
    )
    assert isinstance(whole, DictConfig)
    return whole
