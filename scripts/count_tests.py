#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the tests of one ctest run, each case of a GoogleTest program for itself.

FOLDER holds ctest's report ctest.xml (--output-junit) and the programs' own NAME.xml
(GTEST_OUTPUT=xml:FOLDER/). Prints failed and skipped cases with their reasons, and as the last
line 'PASSED FAILED SKIPPED'.

With --pytest it counts one report of pytest (--junitxml) instead.

Usage: count_tests.py FOLDER | --pytest FILE
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

PASSED, SKIPPED, FAILED = 0, 1, 2
GTEST_NAME = re.compile(r"^(.*?)(_\d+)?$")


def one_line(text):
    return " ".join((text or "").split())[:300]


def gtest_cases(file):
    """{case: (outcome, reason)} of a GoogleTest report."""
    cases = {}
    for suite in ElementTree.parse(file).getroot().iter("testsuite"):
        for case in suite.iter("testcase"):
            name = f"{case.get('classname')}.{case.get('name')}"
            failures, skip = case.findall("failure"), case.find("skipped")
            if failures:
                cases[name] = (FAILED, one_line(failures[0].get("message")))
            elif skip is not None:
                cases[name] = (SKIPPED, one_line(skip.get("message")))
            elif case.get("status") == "run":
                cases[name] = (PASSED, "")
    return cases


def program_cases(folder, test):
    """The cases of all runs of a program: a test that runs itself again writes more reports."""
    cases = {}
    for file in sorted(folder.glob(f"{test}*.xml")):
        if file.stem != test and GTEST_NAME.match(file.stem)[1] != test:
            continue
        for name, result in gtest_cases(file).items():
            cases[name] = max(cases.get(name, (PASSED, "")), result)
    return cases


def unittest_cases(test, output):
    """Python's unittest prints how many it ran and skipped; 0 of them otherwise."""
    ran = re.findall(r"^Ran (\d+) tests? in ", output, re.MULTILINE)
    skipped = re.findall(r"^OK \(.*?skipped=(\d+)", output, re.MULTILINE)
    cases = {f"case {i}": (PASSED, "") for i in range(sum(map(int, ran)))}
    for i in range(sum(map(int, skipped))):
        cases[f"case {i}"] = (SKIPPED, f"{test} says why in its log")
    return cases


def entry_cases(folder, entry):
    """The cases of one ctest entry, with the entry's own outcome taken in."""
    test, status = entry.get("name"), entry.get("status")
    output = entry.findtext("system-out") or ""
    if status == "disabled":
        return {"(all)": (SKIPPED, "disabled")}
    cases = program_cases(folder, test) or unittest_cases(test, output)
    failed = status == "fail" or entry.find("failure") is not None
    if failed and not any(outcome == FAILED for outcome, _ in cases.values()):
        # A crash, a sanitizer's report, a time-out: no case of its own says so.
        cases["(program)"] = (FAILED, one_line(output[-600:]) or "failed and printed nothing")
    if not cases:
        skip = entry.find("skipped")
        if status == "notrun" or skip is not None:
            message = skip.get("message") if skip is not None else "did not run"
            cases["(all)"] = (SKIPPED, one_line(output[-300:]) or one_line(message))
        else:
            cases["(all)"] = (PASSED, "")
    return cases


def pytest_cases(file):
    """{case: (outcome, reason)} of a report of pytest."""
    cases = {}
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failures, skip = case.findall("failure") + case.findall("error"), case.find("skipped")
        if failures:
            cases[name] = (FAILED, one_line(failures[0].get("message")))
        elif skip is not None:
            cases[name] = (SKIPPED, one_line(skip.get("message")))
        else:
            cases[name] = (PASSED, "")
    return cases


def report(program, cases, counts):
    """Counts cases, and prints those that failed and why others were skipped."""
    reasons = {}
    for case, (outcome, reason) in cases.items():
        counts[outcome] += 1
        if outcome == FAILED:
            print(f"   FAILED  {program} {case}: {reason}")
        elif outcome == SKIPPED:
            reasons.setdefault(reason, []).append(case)
    for reason, names in reasons.items():
        print(f"   skipped {program}: {len(names)} ({names[0]}...): {reason}")


def main():
    counts = [0, 0, 0]
    if sys.argv[1] == "--pytest":
        cases = pytest_cases(sys.argv[2])
        report("pytest", cases, counts)
        if not cases:
            print("   FAILED  pytest ran no test")
            counts[FAILED] += 1
        print(counts[PASSED], counts[FAILED], counts[SKIPPED])
        return
    folder = pathlib.Path(sys.argv[1])
    entries = list(ElementTree.parse(folder / "ctest.xml").getroot().iter("testcase"))
    for entry in entries:
        report(entry.get("name"), entry_cases(folder, entry), counts)
    if not entries:
        print("   FAILED  ctest ran no test")
        counts[FAILED] += 1
    print(counts[PASSED], counts[FAILED], counts[SKIPPED])


if __name__ == "__main__":
    main()
