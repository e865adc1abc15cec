"""The native part.  Where there is no C compiler the install goes on without it, and the backend
rejects itself with that reason."""

from setuptools import Extension, setup

NATIVE = "src/framework_cpu_paged/native"
# Masks are infinities, and sums have an order: whatever CFLAGS says, both mean what they say.
EXACT = ["-fno-fast-math", "-fno-unsafe-math-optimizations", "-fno-finite-math-only"]

setup(
    ext_modules=[
        Extension(
            "framework_cpu_paged._native",
            sources=[
                f"{NATIVE}/{name}.c"
                for name in (
                    *("module", "packed_module", "plan", "packed", "block", "room", "threads"),
                    *(
                        "sets",
                        "weights",
                        "low_rank",
                        "low_rank_module",
                        "amx",
                        "avx512",
                        "avx2",
                        "plain",
                    ),
                )
            ],
            depends=[
                f"{NATIVE}/{name}.h"
                for name in (
                    "module",
                    "paged",
                    "packed",
                    "vectors",
                    "attend",
                    "attend_part",
                    "linear",
                    "linear_amx",
                    "linear_amx_layout",
                    "linear_layout",
                    "linear_multiply",
                    "linear_rows",
                    "linear_words",
                )
            ],
            extra_compile_args=[
                *["-O3", "-std=gnu11", "-ffp-contract=fast"],
                *["-fvisibility=hidden", "-Wno-psabi"],
                *EXACT,
            ],
            extra_link_args=EXACT,
            libraries=["dl", "m", "pthread"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
