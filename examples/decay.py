"""Plot how memories fade under both curves to a PNG: `python examples/decay.py decay.png` (needs matplotlib)."""

from __future__ import annotations

import sys

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt

from hippocampus import days_above, score

DAYS = 60
DECAY_RATE = 0.1
THRESHOLD = 0.05
LINES = (
    ("summary, never used", "strength", 0.8, 0, "-"),
    ("summary, used 5 times", "strength", 0.8, 5, "-"),
    ("important insight, never used", "strength", 1.0, 0, "-"),
    ("anything, never used (classic)", "classic", 0.8, 0, "--"),
)


def main(path: str) -> None:
    """Plot a line for each kind of memory, and the point where it falls below the threshold."""
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    days = [day / 4 for day in range(4 * DAYS + 1)]
    for label, curve, initial, used, style in LINES:
        (line,) = axes.plot(days, [score(curve, initial, used, day, DECAY_RATE) for day in days], style, label=label)
        last = days_above(curve, THRESHOLD, initial, used, DECAY_RATE)
        if last < DAYS:
            axes.plot([last], [THRESHOLD], "o", color=line.get_color())
            print(f"{label}: below {THRESHOLD} after {last:.1f} days")
        else:
            print(f"{label}: still above {THRESHOLD} after {DAYS} days")
    axes.axhline(THRESHOLD, color="grey", linewidth=0.8)
    axes.set(xlabel="days since its last use", ylabel="retention score", ylim=(0, 1), xlim=(0, DAYS))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(sys.argv[1])
