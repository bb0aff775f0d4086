"""A Flower app: clients keep their digits, the server gets the model of all of them."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from sklearn.datasets import load_digits

from dsal import DSALClassifier
from dsal.integrations.flower import client_app, federate


def rows(context: Context):
    """The rows of this client; each has its own."""
    X, y = load_digits(return_X_y=True)
    mine = int(context.node_config["partition-id"])
    return X[mine::3] / 16, y[mine::3]


client = client_app(rows)
server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    model = DSALClassifier(expansion_size=256, compensation=None)
    found = federate(grid, model, clients=context.run_config["clients"])
    found.model.save(context.run_config["out"])
    print(found.clients, found.received, found.left_out)
