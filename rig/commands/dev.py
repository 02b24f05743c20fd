"""``headwater dev``: what developers of Headwater and its workflows run."""

import typer

from rig.commands import assets, bench, jars, reference, review

app = typer.Typer(help="What developers of Headwater and its workflows run.", no_args_is_help=True)
for one in (assets.assets, bench.bench, reference.reference):
    app.command()(one)
app.add_typer(jars.app, name="jars")
app.add_typer(review.app, name="review")
