# SPDX-License-Identifier: Apache-2.0
"""The tree checkers find what they are for, in trees made to be wrong."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402
import check_sizes  # noqa: E402
import check_text  # noqa: E402
import count_tests  # noqa: E402


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())


class LayersTest(TreeTest):
    def expect(self, path, include, why):
        self.write(path, f"int a;\n#include {include}\n")
        found = check_layers.check(self.root)
        (self.root / path).unlink()
        if why is None:
            self.assertEqual(found, [])
        else:
            self.assertEqual(len(found), 1, found)
            self.assertTrue(found[0].startswith(f"{path}:2: "), found)
            self.assertIn(why, found[0])

    def test_modules(self):
        self.expect("src/base/a.cpp", '"store/b.h"', "base may not include store")
        self.expect("src/hevc/a.cpp", '"layout/b.h"', "hevc may not include layout")
        self.expect("src/store/a.h", '"codec/b.h"', "store may not include codec")
        self.expect("src/codec/a.h", '"store/b.h"', "codec may not include store")
        self.expect("src/fetch/a.h", '"hevc/b.h"', "fetch may not include hevc")
        self.expect("src/layout/a.h", '"format/b.h"', None)
        self.expect("src/layout/a.h", '"layout/b.h"', None)
        self.expect("src/codec/a.h", '  "hevc/b.h"', None)
        self.expect("src/novel/a.h", '"base/b.h"', "unknown module novel")

    def test_public_headers(self):
        self.expect("src/store/a.h", '"kvcodec/codec.h"', "store may not include kvcodec/codec.h")
        self.expect("src/base/a.h", '<kvcodec/fetch.h>', "base may not include kvcodec/fetch.h")
        self.expect("src/base/a.h", '"kvcodec/novel.h"', "unknown public header")
        self.expect("include/kvcodec/kv.h", '"base/error.h"', "public headers only")
        self.expect("include/kvcodec/kv.h", '"kvcodec/store.h"', "kv.h may not include store.h")
        self.expect("include/kvcodec/novel.h", '"kvcodec/kv.h"', "unknown public header")
        self.expect("include/kvcodec/fetch.h", '"kvcodec/store.h"', None)

    def test_programs(self):
        self.expect("tools/a.cpp", '"base/error.h"', "tools may include public headers only")
        self.expect("tools/a.cpp", '"kvcodec/llama.h"', None)
        self.expect("tools/a.cpp", '"output.h"', None)
        self.expect("tests/unit/a.cpp", '"hevc/encoder.h"', None)

    def test_paths(self):
        self.expect("src/base/a.cpp", '"../store/b.h"', "include paths start at")
        self.expect("src/codec/a.cpp", "<cuda_runtime.h>", "CUDA headers belong")
        self.expect("src/codec/a_cuda.cu", "<cuda_runtime.h>", None)

    def test_base_names_are_unique(self):
        self.write("src/base/pack.h", "")
        self.write("src/base/pack.cpp", "")
        self.assertEqual(check_layers.check(self.root), [])
        self.write("tests/unit/pack.cpp", "")
        self.assertIn("src/base, tests/unit", check_layers.check(self.root)[0])


class SizesTest(TreeTest):
    def test_limit_and_aim(self):
        self.write("src/base/limit.cpp", "x\n" * check_sizes.LIMIT)
        self.write("src/base/over.cpp", "x\n" * (check_sizes.LIMIT + 1))
        self.write("src/base/aim.cpp", "x\n" * check_sizes.AIM)
        over, long = check_sizes.check(self.root)
        self.assertEqual(over, [(check_sizes.LIMIT + 1, "src/base/over.cpp")])
        self.assertEqual(long, [(check_sizes.LIMIT, "src/base/limit.cpp")])


class TextTest(TreeTest):
    def test_each_rule(self):
        head = "// SPDX-License-Identifier: Apache-2.0\n"
        for text, why in {
            head + "int a; \n": "2: blank at the end",
            head + "\tint a;\n": "2: tab",
            head + "int a;": "no newline at the end",
            head + "int a;\n\n": "blank line at the end",
            head + "int a;\r\n": "2: carriage return",
            head + "int a\u200b;\n": "2: invisible character",
            head + "int a;\n// \x07\n": "3: invisible character",
            "int a;\nint b;\n" + head: "SPDX",
        }.items():
            self.write("src/base/a.cpp", text)
            found = check_text.check(self.root, ["src/base/a.cpp"])
            self.assertEqual(len(found), 1, (text, found))
            self.assertIn(why, found[0])
        self.write("src/base/a.cpp", head + "int a;  // \u00e9\n")
        self.assertEqual(check_text.check(self.root, ["src/base/a.cpp"]), [])
        self.write("scripts/a", "#!/bin/sh\n" + head.replace("//", "#") + "true\n")
        self.assertEqual(check_text.check(self.root, ["scripts/a"]), [])


PYTEST_REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="a" name="passes"/>
<testcase classname="a" name="skips"><skipped type="pytest.skip" message="no device"/></testcase>
<testcase classname="a" name="fails"><failure message="assert 1 == 2">text</failure></testcase>
<testcase classname="a" name="breaks"><error message="fixture"/></testcase>
</testsuite></testsuites>"""


class CountTest(TreeTest):
    def test_every_outcome_of_pytest_counts(self):
        self.write("report.xml", PYTEST_REPORT)
        cases = count_tests.pytest_cases(self.root / "report.xml")
        self.assertEqual(cases, {"a.passes": (count_tests.PASSED, ""), "a.skips": (count_tests.SKIPPED, "no device"),
                                 "a.fails": (count_tests.FAILED, "assert 1 == 2"),
                                 "a.breaks": (count_tests.FAILED, "fixture")})
        for report, line in ((PYTEST_REPORT, "1 2 1"), ("<testsuites/>", "0 1 0")):
            self.write("report.xml", report)
            done = subprocess.run([sys.executable, ROOT / "scripts/count_tests.py", "--pytest", self.root / "report.xml"],
                                  stdout=subprocess.PIPE, text=True, check=True)
            self.assertEqual(done.stdout.splitlines()[-1], line)


BAD_NAMES = """
#define BAD_MACRO 1
namespace BadSpace { constexpr int bad_global = 1; const int kGood = 2; }
struct badType { static constexpr int bad_constant = 1; static constexpr int kOk = 1; int badField; };
class Good { int bad = 0; int y_ = 0; public: int get() const { return bad + y_; } void BadMethod() {} };
enum class Colour { kBad, good };
enum Plain { kGoodToo, bad_plain };
int BadFunction(int BadParameter) { constexpr int ok = 2; int BadVariable = BadParameter; return ok + BadVariable; }
"""


@unittest.skipUnless(shutil.which("clang-tidy-14"), "clang-tidy 14 is not installed")
class NamingTest(TreeTest):
    def test_bad_names_are_errors(self):
        shutil.copy(ROOT / ".clang-tidy", self.root)
        self.write("src/names.cpp", BAD_NAMES)
        done = subprocess.run(["clang-tidy-14", "src/names.cpp", "--", "-std=c++20"], cwd=self.root,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.assertNotEqual(done.returncode, 0)
        named = re.findall(r"error: invalid case style for .* '(\w+)'", done.stdout)
        self.assertEqual(named, ["BAD_MACRO", "BadSpace", "bad_global", "badType", "bad_constant",
                                 "badField", "bad", "BadMethod", "kBad", "bad_plain",
                                 "BadFunction", "BadParameter", "BadVariable"])


class ThisTreeTest(unittest.TestCase):
    def test_is_clean(self):
        self.assertEqual(check_layers.check(ROOT), [])
        self.assertEqual(check_sizes.check(ROOT)[0], [])


if __name__ == "__main__":
    unittest.main()
