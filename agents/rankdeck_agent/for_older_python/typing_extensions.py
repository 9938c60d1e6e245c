"""For paho in Python 3.6 and 3.7: the one name that it needs at run time. Types mean nothing there."""


class _Literal:
    def __getitem__(self, values: object) -> object:
        return object


Literal = _Literal()
