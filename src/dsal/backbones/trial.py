"""Run an ONNX graph once, in a process of its own, with limits on time and memory. Imports nothing of dsal.

:mod:`dsal.backbones.foreign` starts it as a script: the graph comes from standard input, the limits from the arguments.
"""

import json
import sys


def main() -> None:
    """Print the shapes of the outputs for one image and for a few, as JSON; or the reason why there are none."""
    seconds, memory = (int(argument) for argument in sys.argv[1:3])
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    except (ImportError, ValueError, OSError):  # Windows has no such limits; the parent still watches the time
        pass
    import numpy
    import onnxruntime

    types = {"tensor(float)": "f4", "tensor(uint8)": "u1", "tensor(float16)": "f2"}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    answer: dict[str, object]
    try:
        session = onnxruntime.InferenceSession(sys.stdin.buffer.read(), options, providers=["CPUExecutionProvider"])
        (given, *others), shapes = session.get_inputs(), []
        if others or given.type not in types or len(given.shape) != 4:
            raise ValueError("it must take one tensor of images (n, c, h, w), float or uint8")
        count, channels, height, width = (side if isinstance(side, int) else None for side in given.shape)
        side = height or width or 224
        for images in (1, 8) if count is None else (count,):
            zeros = numpy.zeros((images, channels or 3, height or side, width or side), types[given.type])
            shapes.append(list(session.run(None, {given.name: zeros})[0].shape))
        answer = {"shapes": shapes}
    except Exception as error:  # ONNX Runtime has its own exception for every kind of damage
        answer = {"error": f"{type(error).__name__}: {error}"[:500]}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
