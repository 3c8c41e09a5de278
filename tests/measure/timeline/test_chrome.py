import json

from meshfit.measure.timeline.chrome import RankTimeline, chrome_trace
from meshfit.measure.timeline.spans import Call, Computation, StepTrace

TRACE = StepTrace(
    rank=0,
    begin_s=20.0,
    end_s=22.0,
    computations=(Computation(name="mm", work="compute", begin_s=20.0, end_s=21.0),),
    calls=tuple(
        Call(
            collective="p2p",
            axis="pp",
            group="1",
            ranks=(0, 1),
            begin_s=20.5,
            end_s=21.0 + late,
            size_bytes=64,
            source=0,
            target=1,
        )
        for late in (0.0, 0.5)
    ),
    input_waits=((20.0, 20.1),),
)
TIMELINE = RankTimeline(
    rank=0,
    host="node0",
    phases={"import": (10.0, 12.0), "build": (12.0, 14.0)},
    steps=[(15.0, 16.0), (16.0, 17.0)],
    traces=[TRACE],
)


def test_a_timeline_starts_with_the_first_phase_and_counts_microseconds() -> None:
    events = json.loads(json.dumps(chrome_trace([TIMELINE])))["traceEvents"]
    spans = {event["name"]: (event["ts"], event["dur"]) for event in events if event["ph"] == "X"}
    assert spans["import"] == (0.0, 2e6)
    assert spans["step 1"] == (6e6, 1e6)
    assert spans["profiled step"] == (10e6, 2e6)
    assert spans["mm"] == (10e6, 1e6)
    assert "input wait" in spans


def test_calls_that_overlap_are_tracks_of_their_own_that_begin_and_end() -> None:
    events = chrome_trace([TIMELINE])["traceEvents"]
    begins = [event for event in events if event["ph"] == "b"]
    ends = [event for event in events if event["ph"] == "e"]
    assert [event["name"] for event in begins] == ["p2p.pp", "p2p.pp"]
    assert len({event["id"] for event in begins}) == 2
    assert begins[0]["args"] == {"ranks": [0, 1], "bytes": 64, "source": 0, "target": 1}
    assert [end["ts"] - begin["ts"] for begin, end in zip(begins, ends, strict=True)] == [5e5, 1e6]


def test_every_rank_is_a_process_with_named_threads() -> None:
    events = chrome_trace([TIMELINE])["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"rank 0 on node0", "phases", "steps", "computation", "input"}


def test_no_ranks_make_an_empty_timeline() -> None:
    assert chrome_trace([])["traceEvents"] == []
