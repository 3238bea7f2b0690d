import pytest

pytest.register_assert_rewrite("tests.system.cluster.drivers")
