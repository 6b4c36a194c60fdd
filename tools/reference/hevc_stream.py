# SPDX-License-Identifier: Apache-2.0
"""The HEVC stream around a stored picture, and its decoding by a video library.

docs/format.md, "The HEVC stream of a picture"; clause and table numbers are those of ITU-T H.265.
"""

import importlib.util
import io
import shutil
import subprocess

import numpy as np


SLICE_QP = 0


class BitWriter:
    def __init__(self):
        self.bits = []

    def u(self, value, count):  # u(n)
        self.bits += [value >> i & 1 for i in reversed(range(count))]

    def ue(self, value):  # 9.2
        length = (value + 1).bit_length()
        self.u(0, length - 1)
        self.u(value + 1, length)

    def se(self, value):  # 9.2.2
        self.ue(2 * value - 1 if value > 0 else -2 * value)

    def end(self):  # a one bit, then zeros up to a byte
        self.bits.append(1)
        self.bits += [0] * (-len(self.bits) % 8)
        return bytes(np.packbits(np.array(self.bits, np.uint8)))


def prevent_emulation(payload):  # 7.4.1.1
    out, zeros = bytearray(), 0
    for byte in payload:
        if zeros >= 2 and byte <= 3:
            out.append(3)
            zeros = 0
        out.append(byte)
        zeros = zeros + 1 if byte == 0 else 0
    return bytes(out)


def nal_unit(nal_type, payload):
    return bytes([0, 0, 0, 1, nal_type << 1, 1]) + prevent_emulation(payload)


def put_profile_tier_level(w, width, height, rice):  # 7.3.3
    profile = 4 if rice else 1
    w.u(0, 2)
    w.u(1, 1)
    w.u(profile, 5)
    compatible = [4] if rice else [1, 2]
    for j in range(32):
        w.u(j in compatible, 1)
    w.u(0b1001, 4)  # progressive_source, interlaced_source, non_packed, frame_only_constraint
    if rice:
        w.u(0b111_000_0_0_1, 9)
        w.u(0, 34)
    else:
        w.u(0, 43)
    w.u(0, 1)
    w.u(186 if width * height <= 35651584 else 189, 8)


def put_ordering_info(w):
    w.u(1, 1)
    w.ue(1)
    w.ue(0)
    w.ue(0)


def vps(width, height, rice):  # 7.3.2.1
    w = BitWriter()
    w.u(0, 4)
    w.u(0b11, 2)
    w.u(0, 6)
    w.u(0, 3)
    w.u(1, 1)
    w.u(0xFFFF, 16)
    put_profile_tier_level(w, width, height, rice)
    put_ordering_info(w)
    w.u(0, 6)
    w.ue(0)
    w.u(0, 1)
    w.u(0, 1)
    return w.end()


def sps(width, height, right, bottom, rice):  # 7.3.2.2
    w = BitWriter()
    w.u(0, 4)
    w.u(0, 3)
    w.u(1, 1)
    put_profile_tier_level(w, width, height, rice)
    w.ue(0)
    w.ue(1)  # 4:2:0
    w.ue(width)
    w.ue(height)
    window = right > 0 or bottom > 0
    w.u(window, 1)
    if window:
        for offset in (0, right // 2, 0, bottom // 2):
            w.ue(offset)
    w.ue(0)
    w.ue(0)
    w.ue(12)  # picture order counts of 16 bits
    put_ordering_info(w)
    w.ue(2)  # coding blocks of 32
    w.ue(0)
    w.ue(0)  # transform blocks of 4
    w.ue(3)  # to 32
    w.ue(0)
    w.ue(0)
    w.u(0, 4)  # scaling lists, AMP, SAO, PCM
    w.ue(0)
    w.u(0, 4)  # long-term pictures, temporal MVP, strong intra smoothing, VUI
    w.u(rice, 1)
    if rice:
        w.u(0b1000_0000, 8)
        w.u(0b0_0000_0010, 9)
    return w.end()


def pps():  # 7.3.2.3
    w = BitWriter()
    w.ue(0)
    w.ue(0)
    w.u(0, 2)
    w.u(0, 3)
    w.u(0, 1)
    w.u(1, 1)  # cabac_init_present_flag
    w.ue(0)
    w.ue(0)
    w.se(SLICE_QP - 26)
    w.u(0, 3)
    w.se(0)
    w.se(0)
    w.u(0, 3)  # slice chroma QP offsets, weighted prediction of P and B
    w.u(1, 1)  # transquant_bypass_enabled_flag
    w.u(0, 3)  # tiles, wavefronts, loop filter across slices
    w.u(1, 1)  # deblocking_filter_control_present_flag
    w.u(0, 1)
    w.u(1, 1)  # pps_deblocking_filter_disabled_flag
    w.u(0, 2)
    w.ue(0)
    w.u(0, 2)
    return w.end()


RANGE_LPS = [  # Table 9-52
    (128, 176, 208, 240), (128, 167, 197, 227), (128, 158, 187, 216), (123, 150, 178, 205),
    (116, 142, 169, 195), (111, 135, 160, 185), (105, 128, 152, 175), (100, 122, 144, 166),
    (95, 116, 137, 158), (90, 110, 130, 150), (85, 104, 123, 142), (81, 99, 117, 135),
    (77, 94, 111, 128), (73, 89, 105, 122), (69, 85, 100, 116), (66, 80, 95, 110),
    (62, 76, 90, 104), (59, 72, 86, 99), (56, 69, 81, 94), (53, 65, 77, 89),
    (51, 62, 73, 85), (48, 59, 69, 80), (46, 56, 66, 76), (43, 53, 63, 72),
    (41, 50, 59, 69), (39, 48, 56, 65), (37, 45, 54, 62), (35, 43, 51, 59),
    (33, 41, 48, 56), (32, 39, 46, 53), (30, 37, 43, 50), (29, 35, 41, 48),
    (27, 33, 39, 45), (26, 31, 37, 43), (24, 30, 35, 41), (23, 28, 33, 39),
    (22, 27, 32, 37), (21, 26, 30, 35), (20, 24, 29, 33), (19, 23, 27, 31),
    (18, 22, 26, 30), (17, 21, 25, 28), (16, 20, 23, 27), (15, 19, 22, 25),
    (14, 18, 21, 24), (14, 17, 20, 23), (13, 16, 19, 22), (12, 15, 18, 21),
    (12, 14, 17, 20), (11, 14, 16, 19), (11, 13, 15, 18), (10, 12, 15, 17),
    (10, 12, 14, 16), (9, 11, 13, 15), (9, 11, 12, 14), (8, 10, 12, 14),
    (8, 9, 11, 13), (7, 9, 11, 12), (7, 9, 10, 12), (7, 8, 10, 11),
    (6, 8, 9, 11), (6, 7, 9, 10), (6, 7, 8, 9), (2, 2, 2, 2)]  # fmt: skip
NEXT_LPS = [  # Table 9-53
    0, 0, 1, 2, 2, 4, 4, 5, 6, 7, 8, 9, 9, 11, 11, 12, 13, 13, 15, 15, 16, 16,
    18, 18, 19, 19, 21, 21, 22, 22, 23, 24, 24, 25, 26, 26, 27, 27, 28, 29, 29, 30, 30, 30,
    31, 32, 32, 33, 33, 33, 34, 34, 35, 35, 35, 36, 36, 36, 37, 37, 37, 38, 38, 63]  # fmt: skip


class Cabac:
    """The encoder of 9.3.4. Contexts are made from their init values."""

    def __init__(self):
        self.low, self.range, self.outstanding, self.first = 0, 510, 0, True
        self.bits, self.states = [], {}

    def put(self, name, init_value, value):
        if name not in self.states:  # 9.3.2.2
            slope, offset = (init_value >> 4) * 5 - 45, ((init_value & 15) << 3) - 16
            state = min(max((slope * SLICE_QP >> 4) + offset, 1), 126)
            self.states[name] = (state - 64, 1) if state > 63 else (63 - state, 0)
        index, mps = self.states[name]
        lps_range = RANGE_LPS[index][self.range >> 6 & 3]
        self.range -= lps_range
        if value == mps:
            self.states[name] = (min(index + 1, 62), mps)
        else:
            self.low += self.range
            self.range = lps_range
            self.states[name] = (NEXT_LPS[index], 1 - mps if index == 0 else mps)
        self.renormalise()

    def put_bypass(self, value):
        self.low = 2 * self.low + (self.range if value else 0)
        if self.low >= 1024:
            self.put_bit(1)
            self.low -= 1024
        elif self.low < 512:
            self.put_bit(0)
        else:
            self.low -= 512
            self.outstanding += 1

    def put_terminate(self, value):
        self.range -= 2
        if value:
            self.low += self.range
            self.range = 2
        self.renormalise()

    def renormalise(self):
        while self.range < 256:
            if self.low < 256:
                self.put_bit(0)
            elif self.low >= 512:
                self.low -= 512
                self.put_bit(1)
            else:
                self.low -= 256
                self.outstanding += 1
            self.range *= 2
            self.low *= 2

    def put_bit(self, bit):
        if not self.first:
            self.bits.append(bit)
        self.first = False
        self.bits += [1 - bit] * self.outstanding
        self.outstanding = 0

    def finish(self):
        self.put_bit(self.low >> 9 & 1)
        self.bits += [self.low >> 8 & 1, 1]  # the one is the slice's trailing bit
        self.bits += [0] * (-len(self.bits) % 8)
        return bytes(np.packbits(np.array(self.bits, np.uint8)))


def flat_picture(width, height):
    w = BitWriter()
    w.u(1, 1)
    w.u(0, 1)
    w.ue(0)
    w.ue(2)  # I
    w.se(0)
    cabac = Cabac()
    units = (width // 32) * (height // 32)
    for i in range(units):
        cabac.put("cu_transquant_bypass_flag", 154, 1)
        cabac.put("part_mode", 184, 1)
        cabac.put("prev_intra_luma_pred_flag", 184, 1)
        cabac.put_bypass(1)  # mpm_idx 1, truncated Rice
        cabac.put_bypass(0)
        cabac.put("intra_chroma_pred_mode", 63, 0)
        cabac.put("cbf_chroma", 94, 0)  # Cb and Cr share a context
        cabac.put("cbf_chroma", 94, 0)
        cabac.put("cbf_luma", 141, 0)
        cabac.put_terminate(i == units - 1)
    return w.end() + cabac.finish()


def picture_header():  # of picture order count 1
    w = BitWriter()
    w.u(1, 1)
    w.ue(0)
    w.ue(1)  # P
    w.u(1, 16)
    w.u(0, 1)
    w.ue(1)  # num_negative_pics
    w.ue(0)
    w.ue(0)
    w.u(1, 1)
    w.u(0, 1)
    w.u(0, 1)  # cabac_init_flag
    w.ue(4)
    w.se(0)
    return w.end()


def stream_of(payload, width, height, rice):
    """The Annex B stream of the flat picture and the stored one."""
    coded_width, coded_height = (width + 31) // 32 * 32, (height + 31) // 32 * 32
    return (
        nal_unit(32, vps(coded_width, coded_height, rice))
        + nal_unit(33, sps(coded_width, coded_height, coded_width - width, coded_height - height, rice))
        + nal_unit(34, pps())
        + nal_unit(20, flat_picture(coded_width, coded_height))
        + nal_unit(1, picture_header())
        + payload
    )


def decode_with_ffmpeg(stream, width, height):
    command = ["ffmpeg", "-v", "error", "-f", "hevc", "-i", "pipe:0",
               "-f", "rawvideo", "-pix_fmt", "yuv420p", "pipe:1"]  # fmt: skip
    result = subprocess.run(command, input=stream, capture_output=True, check=False)
    frame_bytes = width * height * 3 // 2
    frames = np.frombuffer(result.stdout, np.uint8)
    if result.returncode != 0 or len(frames) != 2 * frame_bytes:
        raise ValueError(f"ffmpeg: {result.stderr.decode(errors='replace').strip()}")
    return frames[frame_bytes : frame_bytes + width * height].reshape(height, width)


def decode_with_av(stream, width, height):
    import av

    with av.open(io.BytesIO(stream), format="hevc") as container:
        frames = [frame for frame in container.decode(video=0)]
    if len(frames) != 2 or (frames[1].width, frames[1].height) != (width, height):
        raise ValueError(f"PyAV: expected 2 pictures of {width}x{height}, found {len(frames)}")
    plane = frames[1].planes[0]
    return np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:height, :width]


def find_decoder():
    """A function (stream, width, height) -> luma samples, or None where there is no tool."""
    if importlib.util.find_spec("av"):  # no process a picture
        return decode_with_av
    return decode_with_ffmpeg if shutil.which("ffmpeg") else None
