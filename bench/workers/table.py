"""Medians of the rounds, and the Markdown table."""

from __future__ import annotations

from statistics import median

from bench.workers.entries import DRAIN, Command, Entry
from bench.workers.install import Missing
from bench.workers.running import Outcome

HEAD = (
    "| workload | worker | version | messages/s | slowest to fastest | of pgqueuer | of graphile "
    "| channels in the first 1,000 | overlaps | cores: client + PostgreSQL |\n"
    "|---|---|---|--:|--:|--:|--:|--:|--:|--:|"
)
Results = dict[Entry, list[Outcome | str]]
Commands = dict[Entry, Command | Missing]


def markdown(commands: Commands, results: Results, messages: int) -> str:
    rates = {entry: _rate(outcomes) for entry, outcomes in results.items()}
    lines = [HEAD]
    for entry, command in commands.items():
        title = (
            f"{messages:,} no-ops" if entry.workload == DRAIN else "1,000 channels, limit 1 each"
        )
        if isinstance(command, Missing):
            cells = ["", f"({command})", *[""] * 6]
        else:
            cells = [command.version, *_cells(entry, results[entry], rates, messages)]
        lines.append(f"| {title} | {entry.shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(
    entry: Entry, outcomes: list[Outcome | str], rates: dict[Entry, float | None], messages: int
) -> list[str]:
    good = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    wrong = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if not good:
        return [f"({wrong[0]})", *[""] * 6]
    rate = median(one.rate for one in good)
    marks = "†" if any(one.capped for one in good) else ""
    if any(one.handled > messages for one in good):
        marks += " (some handled twice)"
    if wrong:
        marks += f" ({len(wrong)} of {len(outcomes)} rounds failed: {wrong[0]})"
    low, high = min(one.rate for one in good), max(one.rate for one in good)
    client, server = median(o.client_cores for o in good), median(o.server_cores for o in good)
    limited = [one for one in good if one.distinct is not None]
    return [
        f"{rate:,.0f}{marks}",
        f"{low:,.0f} to {high:,.0f}",
        _ratio(rate, entry, "pgqueuer", rates),
        _ratio(rate, entry, "graphile", rates),
        f"{median(one.distinct or 0 for one in limited):,.0f}" if limited else "",
        f"{max(one.overlaps or 0 for one in limited):,}" if limited else "",
        f"{client:.2f} + {server:.2f}",
    ]


def _ratio(rate: float, entry: Entry, name: str, rates: dict[Entry, float | None]) -> str:
    for other, theirs in rates.items():
        if other.name == name and other.workload == entry.workload and theirs:
            return f"{rate / theirs:.2f}"
    return ""


def _rate(outcomes: list[Outcome | str]) -> float | None:
    rates = [outcome.rate for outcome in outcomes if isinstance(outcome, Outcome)]
    return median(rates) if rates else None
