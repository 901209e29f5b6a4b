"""Solutions of ex07.in_system: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex07_in_system import AFTER, BEFORE, CASES, EDGE, INPUTS, INSIDE, OUTSIDE, PEAK, STILL

ALL = frozenset(CASES)
MEANS = ALL - {PEAK}

PLAIN = """
    def in_system(stays, begin_s, end_s):
        cut = []
        for arrival, ended in stays:
            if ended is None:
                ended = end_s
            first, last = max(arrival, begin_s), min(ended, end_s)
            if first < last:
                cut.append((first, last))
        area = sum(last - first for first, last in cut)
        counts = [sum(first <= moment < last for first, last in cut) for moment, _ in cut]
        return {"mean_in_system": area / (end_s - begin_s), "most_in_system": max(counts, default=0)}
    """

RIGHT = {
    "stays cut to the window": PLAIN,
    "a sweep over what happens, leaving before coming": """
        def in_system(stays, begin_s, end_s):
            events = []
            for arrival, ended in stays:
                events.append((arrival, 1))
                if ended is not None:
                    events.append((ended, -1))
            number, area, most, last = 0, 0.0, 0, begin_s
            for time, change in sorted(events) + [(end_s, 0)]:
                if time > begin_s:
                    if last < end_s:
                        upto = min(time, end_s)
                        area += number * (upto - last)
                        if upto > last:
                            most = max(most, number)
                        last = upto
                number += change
            return {"mean_in_system": area / (end_s - begin_s), "most_in_system": most}
        """,
    "NumPy, pieces in which nothing changes": """
        import numpy as np
        def in_system(stays, begin_s, end_s):
            begins = np.array([a for a, _ in stays])
            ends = np.array([np.inf if e is None else e for _, e in stays])
            moments = np.concatenate([begins, ends, [begin_s, end_s]]).clip(begin_s, end_s)
            moments = np.unique(moments)
            lengths, middles = np.diff(moments), (moments[1:] + moments[:-1]) / 2
            there = ((begins <= middles[:, None]) & (middles[:, None] < ends)).sum(axis=1)
            return {"mean_in_system": (lengths * there).sum() / lengths.sum(), "most_in_system": there.max()}
        """,
    "a heap of ends": """
        import heapq
        from collections import OrderedDict
        def in_system(stays, begin_s, end_s):
            inside, most, total = [], 0, 0
            for arrival, ended in sorted(stays, key=lambda stay: stay[0]):
                ended = end_s if ended is None or ended > end_s else ended
                arrival = arrival if arrival > begin_s else begin_s
                if ended <= arrival:
                    continue
                while inside and inside[0] <= arrival:
                    heapq.heappop(inside)
                heapq.heappush(inside, ended)
                most, total = max(most, len(inside)), total + ended - arrival
            return OrderedDict(most_in_system=most, mean_in_system=total / (end_s - begin_s))
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    return changed_in(PLAIN, *pairs)


MEAN, MOST, COUNTS = "area / (end_s - begin_s)", "max(counts, default=0)", "for moment, _ in cut]"
CUT = "            if first < last:\n"

WRONG = {
    "the mean over arrivals": Wrong(
        changed((MEAN, "sum(counts) / max(1, len(counts))")), MEANS, ("a mean over arrivals",)
    ),
    "the mean over arrivals, who comes not counted": Wrong(
        changed((MEAN, "sum(n - 1 for n in counts) / max(1, len(counts))")), MEANS, ("a mean over arrivals",)
    ),
    "the mean over all changes": Wrong(
        changed((
            MEAN,
            "sum(sum(a <= moment < e for a, e in cut) for stay in cut for moment in stay) / max(1, 2 * len(cut))",
        )),
        MEANS,
        ("Weight each number with its time",),
    ),
    "the mean stay": Wrong(changed((MEAN, "area / max(1, len(cut))")), MEANS, ("mean time that a request was there",)),
    "not divided by the time": Wrong(changed((MEAN, "area")), MEANS, ("not divided by the length",)),
    "divided by the time from the first arrival to the last end": Wrong(
        changed((MEAN, "area / (max(e for _, e in cut) - min(a for a, _ in cut)) if cut else 0.0")), MEANS
    ),
    "divided by the number of requests": Wrong(changed((MEAN, "area / (end_s - begin_s) / max(1, len(stays))")), MEANS),
    "who is still there is left out": Wrong(
        changed(("                ended = end_s\n", "                continue\n")),
        frozenset({STILL}),
        ("Who is still there",),
    ),
    "who came before the window is left out": Wrong(
        changed((CUT, "            if begin_s <= arrival and first < last:\n")),
        frozenset({BEFORE, AFTER}),
        ("Who came before the window began was left out",),
    ),
    "who leaves after the window is left out": Wrong(
        changed((CUT, "            if ended <= end_s and first < last:\n")),
        frozenset({AFTER}),
        ("Who leaves after the window has ended was left out",),
    ),
    "only who came and left in the window": Wrong(
        changed((CUT, "            if begin_s <= arrival and ended <= end_s and first < last:\n")),
        frozenset({BEFORE, AFTER}),
    ),
    "not cut off at the end": Wrong(
        changed(("min(ended, end_s)", "ended"), (CUT, "            if first < min(last, end_s):\n")),
        frozenset({AFTER}),
        ("not cut off at its end",),
    ),
    "not cut off at the beginning": Wrong(
        changed(("max(arrival, begin_s)", "arrival"), (CUT, "            if max(first, begin_s) < last:\n")),
        frozenset({BEFORE, AFTER}),
        ("not cut off at its beginning",),
    ),
    "whole stays": Wrong(
        changed(
            ("max(arrival, begin_s), min(ended, end_s)", "arrival, ended"),
            (CUT, "            if last > begin_s and first < end_s:\n"),
        ),
        frozenset({BEFORE, AFTER}),
    ),
    "the window is not looked at": Wrong(
        changed(("max(arrival, begin_s), min(ended, end_s)", "arrival, ended")), frozenset({BEFORE, AFTER, OUTSIDE})
    ),
    "times below 0": Wrong(changed((CUT, "            if True:\n")), frozenset({AFTER, OUTSIDE}), ()),
    "whoever leaves as another comes is still there": Wrong(
        changed(("<= moment < last", "<= moment <= last")), frozenset({EDGE}), ("the two are never there together",)
    ),
    "the most when somebody arrives in the window": Wrong(
        changed((COUNTS, "for moment, _ in cut if moment > begin_s]")),
        frozenset({BEFORE}),
        ("at the beginning of the window, when nobody arrives",),
    ),
    "the most at any time": Wrong(
        changed((MOST, "max([sum(a <= t and (e is None or t < e) for a, e in stays) for t, _ in stays])")),
        frozenset({AFTER, OUTSIDE}),
        ("outside the window",),
    ),
    "all requests are the most": Wrong(
        changed((MOST, "len(cut)")), ALL - {INSIDE, OUTSIDE}, ("Not all of them were there at the same time",)
    ),
    "one fewer": Wrong(changed((MOST, "max(counts, default=1) - 1")), ALL - {INSIDE}),
    "names of one's own": Wrong(changed(('"mean_in_system"', '"mean"')), MEANS, ("There is no “mean_in_system”",)),
    "a pair": Wrong(
        changed(('{"mean_in_system": ', "("), ('"most_in_system": max(counts, default=0)}', "max(counts, default=0))")),
        ALL,
        ("in a dictionary, by name",),
    ),
    "stays in a set": Wrong(
        changed(("        area =", "        cut = [*set(cut)]\n        area =")),
        frozenset({AFTER, EDGE}),
        ("Two requests with the same times are two",),
    ),
    "stays in a dictionary of arrivals": Wrong(
        changed(("in stays:", "in dict(stays).items():")),
        frozenset({EDGE}),
        ("that arrive at the same moment are two",),
    ),
    "looked at every sixteenth of a second": Wrong(
        """
        def in_system(stays, begin_s, end_s):
            ticks = range(int(begin_s * 16), int(end_s * 16))
            counts = [
                sum(a <= tick / 16 and (e is None or tick / 16 < e) for a, e in stays) for tick in ticks
            ]
            return {"mean_in_system": sum(counts) / len(ticks), "most_in_system": float(max(counts))}
        """,
        frozenset({INSIDE, PEAK}),
        ("each number weighted with the time for which it lasts",),
    ),
    "times rounded to thousandths": Wrong(
        changed(
            ("in stays:", "in [[t and round(t, 3) for t in stay] for stay in stays]:"),
        ),
        frozenset({INSIDE}),
    ),
    "the list is sorted": Wrong(
        changed(("        cut = []\n", "        cut = []\n        stays.sort(key=lambda stay: stay[0])\n")),
        frozenset({INPUTS}),
        ("changed the stays",),
    ),
    "nothing is returned": Wrong(changed(("        return {", "        _ = {")), ALL, ("Did you forget",)),
}  # fmt: skip
