"""MI commands that take stacks out of a core; README.md states the contract."""

import json
import os
import sys

import gdb

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import crashkit_native
import crashkit_python


class Command(gdb.MICommand):
    def __init__(self, name, function):
        super().__init__(name)
        self.function = function

    def invoke(self, arguments):
        if len(arguments) != 2:
            raise gdb.GdbError("usage: REQUEST RESULT")
        with open(arguments[0], encoding="utf-8") as file:
            request = json.load(file)
        result = self.function(request)
        # What comes out of a dead process need not be valid text.
        text = json.dumps(result, ensure_ascii=True)
        with open(arguments[1], "x", encoding="ascii") as file:
            file.write(text)
        return {"result": "written"}


def demangle(request):
    names = {}
    for name in request["names"]:
        names[name] = crashkit_native.demangle(name)
    return {"names": names}


Command("-crashkit-native", crashkit_native.extract)
Command("-crashkit-python", crashkit_python.extract)
Command("-crashkit-demangle", demangle)
