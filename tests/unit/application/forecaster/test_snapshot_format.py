import io
import pickle
import zlib

from spotline.application.forecaster.handler import ForecastHandler, ForecastStateCodec
from spotline.application.spec import Context
from spotline.domain.forecasting.registry import forecaster_factory, forecaster_names
from tests.fakes.market_slots import START_NS, series

CTX = Context(seq=1, now_ns=START_NS, event_id="e", correlation_id="c")
FORMAT = "4"
CLASSES = {
    "domain.forecasting.climatology": {"ClimatologyModel", "_Histogram"},
    "domain.forecasting.law_forecaster": {"LawModel", "_Learnt", "_Offering"},
    "domain.forecasting.mixture": {"MixtureModel", "_Issued", "_Pool"},
    "domain.forecasting.persistence": {"PersistenceModel"},
    "domain.forecasting.prepared": {"PreparedState"},
    "domain.forecasting.river_counts": {"CountModel", "_Frequencies", "_Side", "_View"},
    "domain.forecasting.river_forecaster": {"RiverModel", "_OfferingModel"},
    "domain.forecasting.river_prices": {"PriceModel", "_PriceStep"},
    "domain.forecasting.scoring": {"ForecastScoring", "_Averages", "_Issued"},
    "domain.forecasting.seasonal_naive": {"SeasonalNaiveModel", "_Past"},
    "domain.forecasting.snarimax": {"SnarimaxModel", "_Offering", "_Series"},
    "domain.market.forecast": {"CountProbability", "ForecastStep", "OfferingForecast"},
    "domain.market.law": {"RunTracker", "StateSpace"},
}


class Recorder(pickle.Unpickler):
    """Notes where the classes of a state are looked for."""

    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled))
        self.found: dict[str, set[str]] = {}

    def find_class(self, module, name):
        if module.startswith("spotline."):
            self.found.setdefault(module.removeprefix("spotline."), set()).add(name)
        return super().find_class(module, name)


def classes_in(name: str) -> dict[str, set[str]]:
    handler = ForecastHandler(forecaster_factory(name))
    state = handler.initial()
    for opened in series([16, 0, 16] * 3):
        handler.evolve(state, opened)
        for event in handler.decide(state, opened, CTX).events:
            handler.evolve(state, event)
    _, _, packed = state.forecaster.dump().split(b"\n", 2)
    recorder = Recorder(zlib.decompress(packed))
    recorder.load()
    return recorder.found


def test_a_snapshot_whose_classes_have_moved_has_another_format():
    found: dict[str, set[str]] = {}
    for name in forecaster_names():
        for module, classes in classes_in(name).items():
            found.setdefault(module, set()).update(classes)

    unnoted = {module: found[module] for module in found if module not in CLASSES}
    assert unnoted == {}, "note the classes of the new forecaster above"
    assert found == CLASSES, "an older snapshot cannot be read: raise the format in the codec"
    for name in forecaster_names():
        version = ForecastStateCodec(forecaster_factory(name)).version
        assert version.startswith(f"{FORMAT} ")
