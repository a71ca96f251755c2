"""Curves of what a job prints, read as the log grows."""

from gpudeck.app.charts.printed_curves import MOST_CURVES, MOST_POINTS, PrintedCurves


def test_curves_grow_with_the_log_in_whatever_pieces_it_comes():
    text = (
        b'starting\n{"step": 1, "loss": 3}\nstep=2 loss=2.5 acc=0.5\r{"loss": 2, "acc": 1}\nloss=1'
    )
    whole, pieces = PrintedCurves(), PrintedCurves()
    whole.feed(text)
    for at in range(len(text)):
        pieces.feed(text[at : at + 1])
    for found in (whole, pieces):
        curves = {name: values.tolist() for name, (_, values) in found.points.items()}
        assert curves == {"loss": [3, 2.5, 2], "acc": [0.5, 1]}


def test_long_output_and_many_names_need_little_memory():
    curves = PrintedCurves()
    curves.feed(b"x" * 10_000_000)
    curves.feed(b"\n" + b"".join(b"loss=%d\n" % n for n in range(10_000)))
    assert curves.points["loss"][1][-1] == 9999
    assert len(curves.points["loss"][1]) <= MOST_POINTS
    curves.feed(b"".join(b"n%d=1\n" % (n % 100) for n in range(1000)))
    assert len(curves.points) == MOST_CURVES
