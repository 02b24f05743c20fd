"""``headwater dev``: commands for developers of Headwater and for its workflows."""

import typer

from rig.commands import assets, bench, jars, reference, review

app = typer.Typer(help="Commands for developers of Headwater and for its workflows.", no_args_is_help=True)
for one in (assets.assets, bench.bench, reference.reference):
    app.command()(one)
app.add_typer(jars.app, name="jars")
app.add_typer(review.app, name="review")
