"""The kit holds for a provider of paper, and notices what a bad one does wrong."""

from typing import ClassVar

import pytest
from providers import FailingProvider, LyingProvider, PaperProvider, Place

from roq.provider.port import HostRequest, ProvidedHost, Provider
from roq.testing.provider_kit import ProviderKit


class TestPaperProvider(ProviderKit):
    bad_options: ClassVar = ({"hosts_max": -1}, {"hosts_max": "many"})
    paper: ClassVar[Place] = Place()
    test_a_host_joins_the_cluster_and_serves: ClassVar = None  # its hosts are paper

    def open(self) -> Provider:
        return PaperProvider(place=self.paper)

    def end(self, host: ProvidedHost) -> None:
        self.paper.end(host.handle)


class Forgetful(PaperProvider):
    """Does not find what another object has made."""

    def __init__(self) -> None:
        super().__init__(place=Place())


class Sloppy(PaperProvider):
    """Leaves a host behind when creating it fails."""

    def create(self, request: HostRequest) -> ProvidedHost:
        try:
            return super().create(request)
        except Exception:
            super().create(HostRequest(cluster=request.cluster, name=request.name,
                                       managers=["m:1"], zookeeper="z:1"))  # fmt: skip
            raise


@pytest.mark.parametrize(
    ("make", "test"),
    [
        (LyingProvider, "test_a_host_is_what_was_asked_for"),
        (Forgetful, "test_hosts_outlive_the_provider_object_and_are_found_by_another"),
        (Sloppy, "test_a_host_that_cannot_start_is_cleaned_up_or_listed_as_ended"),
    ],
)
def test_a_provider_that_breaks_the_contract_is_found_out(make: type, test: str) -> None:
    class Kit(ProviderKit):
        def open(self) -> Provider:
            made: Provider = make()
            return made

    kit = Kit()
    kit.cluster, kit._opened = "kit", []
    with pytest.raises(AssertionError):
        getattr(kit, test)()


def test_a_provider_that_fails_is_not_taken_for_a_good_one() -> None:
    provider = FailingProvider("create", failures=1)
    request = HostRequest(cluster="c", name="n", managers=["m:1"], zookeeper="z:1")
    with pytest.raises(Exception, match="on fire"):
        provider.create(request)
    assert provider.create(request).name == "n"
