"""One plot per part: Headrace's ratio to each other system, with a bar from 1 for each workload."""

from __future__ import annotations

from pathlib import Path

from bench.report import Figure, Report
from bench.workloads import SERVER_CPU_REQUESTS

_BAR_INCHES = 0.22
_NOT_DRAWN = (SERVER_CPU_REQUESTS,)
"""It has the same rows as the CPU for a MB, and looks much the same."""


def draw(report: Report, folder: Path) -> dict[str, str]:
    """Writes an SVG for each part that compares systems; part -> path relative to the folder."""
    import matplotlib as mpl

    mpl.use("svg")
    # Text stays text and ids stay the same from run to run: the files are small and differ by their figures only.
    mpl.rcParams["svg.fonttype"] = "none"
    mpl.rcParams["svg.hashsalt"] = "headrace"
    (folder / "plots").mkdir(exist_ok=True)
    drawn = {}
    for part in report.parts:
        compared = [figure for figure in report.of_part(part) if len(figure.values) > 1]
        if compared and part not in _NOT_DRAWN:
            drawn[part] = f"plots/{part.replace(' ', '-')}.svg"
            _draw_part(compared, folder / drawn[part])
    return drawn


def _draw_part(figures: list[Figure], path: Path) -> None:
    from matplotlib import pyplot as plt

    peers = list(dict.fromkeys(peer for figure in figures for peer in list(figure.values)[1:]))
    height = max(1.6, (len(peers) + 0.6) * len(figures) * _BAR_INCHES + 0.9)
    picture, axes = plt.subplots(figsize=(8, height), layout="constrained")
    for number, peer in enumerate(peers):
        rows = [(at, ratio) for at, figure in enumerate(figures) if (ratio := figure.ratio(peer)) is not None]
        thick = 0.8 / len(peers)
        middles = [at + (number - (len(peers) - 1) / 2) * thick for at, _ in rows]
        from_one = [ratio.median - 1 for _, ratio in rows]
        spread = [[r.median - r.least for _, r in rows], [r.greatest - r.median for _, r in rows]]
        axes.barh(middles, from_one, thick, left=1, xerr=spread, label=f"to {peer}", error_kw={"elinewidth": 0.8})
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:g}")
    axes.margins(y=0.01)
    axes.set_yticks(range(len(figures)), [f"{figure.workload} [{figure.unit}]" for figure in figures], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"{figures[0].subject} divided by the other")
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(peers))
    picture.savefig(path, format="svg", metadata={"Date": None})
    plt.close(picture)
