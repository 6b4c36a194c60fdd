#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the headers of an HEVC byte stream against ITU-T H.265: hevc_check.py FILE...

Parses every NAL unit but the slice data, by the syntax tables of the standard and not by
docs/format.md: form of the NAL units, profile and its constraint flags, and the limits of the level
(Annex A) that a stream without a clock has: picture size, block sizes, decoded picture buffer,
slices, and the coded picture buffer that a picture must fit. Knows the syntax that KVCodec's
streams use; says `unsupported` for other. Exit status: 0, or 1 where a stream breaks a rule.
"""

import argparse
import pathlib
import sys
from math import isqrt

VPS, SPS, PPS, IDR_N_LP, TRAIL_R = 32, 33, 34, 20, 1
# Table A.8 and A.9 by general_level_idc: MaxLumaPs, MaxCPB of the High tier in 1000 bits,
# MaxSliceSegmentsPerPicture.
LEVELS = {
    150: (8912896, 100000, 200), 153: (8912896, 160000, 200), 156: (8912896, 240000, 200),
    180: (35651584, 240000, 600), 183: (35651584, 480000, 600), 186: (35651584, 800000, 600),
    189: (80216064, 1600000, 600),
}  # fmt: skip
MAIN, RANGE_EXTENSIONS = 1, 4


class Broken(Exception):
    pass


def require(condition, clause, what):
    if not condition:
        raise Broken(f"{clause}: {what}")


class BitReader:
    def __init__(self, rbsp):
        self.rbsp, self.at = rbsp, 0

    def u(self, count):
        value = 0
        for _ in range(count):
            require(self.at < 8 * len(self.rbsp), "7.2", "read beyond the end of a NAL unit")
            value = value << 1 | (self.rbsp[self.at // 8] >> (7 - self.at % 8) & 1)
            self.at += 1
        return value

    def ue(self):
        zeros = 0
        while self.u(1) == 0:
            zeros += 1
            require(zeros < 32, "9.2", "Exp-Golomb code of more than 32 zeros")
        return (1 << zeros) - 1 + self.u(zeros)

    def se(self):
        value = self.ue()
        return (value + 1) // 2 if value % 2 else -(value // 2)

    def fixed(self, count, value, clause, name):
        found = self.u(count)
        require(found == value, clause, f"{name}: expected {value}, found {found}")

    def only(self, found, value, name):
        require(found == value, "unsupported", f"{name}: expected {value}, found {found}")

    def byte_alignment(self, clause):
        self.fixed(1, 1, clause, "stop bit")
        while self.at % 8:
            self.fixed(1, 0, clause, "alignment zero bit")

    def end(self):
        self.byte_alignment("7.3.2.11")
        require(self.at == 8 * len(self.rbsp), "7.3.2.11", "bytes after rbsp_trailing_bits")


def split_nal_units(stream):
    """(type, rbsp) of each NAL unit of a byte stream (Annex B, 7.3.1)."""
    units = []
    for k, unit in enumerate(stream.split(b"\0\0\0\1")):
        if k == 0:
            require(unit == b"", "B.2", "the stream does not begin with a start code")
            continue
        require(len(unit) > 2, "7.3.1", "NAL unit without payload")
        require(unit[-1] != 0, "7.4.1", "NAL unit ends in a zero byte")
        for forbidden in (b"\0\0\0", b"\0\0\1", b"\0\0\2"):
            require(forbidden not in unit, "7.4.1", f"bytes {forbidden.hex()} in a NAL unit")
        rbsp, zeros = bytearray(), 0
        for i, byte in enumerate(unit[2:], 2):
            if zeros >= 2 and byte == 3:
                require(i + 1 == len(unit) or unit[i + 1] <= 3, "7.4.1", "needless emulation prevention")
                zeros = 0
                continue
            zeros = zeros + 1 if byte == 0 else 0
            rbsp.append(byte)
        require(unit[0] >> 7 == 0, "7.4.2.2", "forbidden_zero_bit is 1")
        require((unit[0] & 1) << 5 | unit[1] >> 3 == 0, "unsupported", "nuh_layer_id is not 0")
        require(unit[1] & 7 == 1, "unsupported", "nuh_temporal_id_plus1 is not 1")
        units.append((unit[0] >> 1 & 63, bytes(rbsp)))
    return units


def profile_tier_level(r):
    r.fixed(2, 0, "A.3", "general_profile_space")
    tier, profile = r.u(1), r.u(5)
    compatible = [r.u(1) for _ in range(32)]
    require(profile in (MAIN, RANGE_EXTENSIONS), "unsupported", f"general_profile_idc {profile}")
    require(compatible[profile] == 1, "7.4.4", "general_profile_compatibility_flag of the profile is 0")
    require(profile != MAIN or compatible[2] == 1, "A.3.2", "a Main stream is a Main 10 stream too")
    progressive, interlaced = r.u(1), r.u(1)
    require((progressive, interlaced) != (0, 1), "unsupported", "interlaced source")
    r.u(2)  # general_non_packed_constraint_flag, general_frame_only_constraint_flag
    if profile == RANGE_EXTENSIONS:
        flags = [r.u(1) for _ in range(9)]  # Table A.2, Main 4:4:4: 1 1 1 0 0 0 0 0 1
        require(flags == [1, 1, 1, 0, 0, 0, 0, 0, 1], "A.3.5", f"constraint flags of no profile: {flags}")
        r.fixed(32, 0, "7.4.4", "general_reserved_zero_34bits")
        r.fixed(2, 0, "7.4.4", "general_reserved_zero_34bits")
    else:
        r.fixed(32, 0, "7.4.4", "general_reserved_zero_43bits")
        r.fixed(11, 0, "7.4.4", "general_reserved_zero_43bits")
    r.u(1)  # general_inbld_flag or reserved
    level = r.u(8)
    require(level in LEVELS, "A.4", f"general_level_idc {level} is no level")
    require(tier == 1, "unsupported", "Main tier")
    return profile, level


def ordering_info(r):
    r.only(r.u(1), 1, "sub_layer_ordering_info_present_flag")
    buffers, reorder, latency = r.ue() + 1, r.ue(), r.ue()
    require(reorder < buffers, "7.4.3.1", "max_num_reorder_pics above max_dec_pic_buffering_minus1")
    return buffers, reorder, latency


def check_vps(rbsp):
    r = BitReader(rbsp)
    r.only(r.u(4), 0, "vps_video_parameter_set_id")
    r.fixed(2, 3, "7.4.3.1", "base layer flags")
    r.only(r.u(6), 0, "vps_max_layers_minus1")
    r.only(r.u(3), 0, "vps_max_sub_layers_minus1")
    r.fixed(1, 1, "7.4.3.1", "vps_temporal_id_nesting_flag with one sub-layer")
    r.fixed(16, 0xFFFF, "7.4.3.1", "vps_reserved_0xffff_16bits")
    found = profile_tier_level(r), ordering_info(r)
    r.only(r.u(6), 0, "vps_max_layer_id")
    r.only(r.ue(), 0, "vps_num_layer_sets_minus1")
    r.only(r.u(2), 0, "vps_timing_info_present_flag, vps_extension_flag")
    r.end()
    return found


def check_sps(rbsp):
    r = BitReader(rbsp)
    r.only(r.u(4), 0, "sps_video_parameter_set_id")
    r.only(r.u(3), 0, "sps_max_sub_layers_minus1")
    r.fixed(1, 1, "7.4.3.2.1", "sps_temporal_id_nesting_flag with one sub-layer")
    profile, level = profile_tier_level(r)
    r.only(r.ue(), 0, "sps_seq_parameter_set_id")
    require(r.ue() == 1, "A.3.2", "chroma_format_idc is not 1")
    width, height = r.ue(), r.ue()
    if r.u(1):
        left, right, top, bottom = (r.ue() for _ in range(4))
        require(2 * (left + right) < width and 2 * (top + bottom) < height, "7.4.3.2.1", "empty window")
    require(r.ue() == 0 and r.ue() == 0, "A.3.2", "bit depth is not 8")
    poc_bits = r.ue() + 4
    require(poc_bits <= 16, "7.4.3.2.1", f"log2_max_pic_order_cnt_lsb {poc_bits}")
    ordering = ordering_info(r)
    min_cb = r.ue() + 3
    ctb = min_cb + r.ue()
    min_tb = r.ue() + 2
    max_tb = min_tb + r.ue()
    require(4 <= ctb <= 6, "A.3.2", f"CtbLog2SizeY {ctb}")
    require(min_tb < min_cb and max_tb <= min(ctb, 5), "7.4.3.2.1", "transform block sizes")
    require(width % (1 << min_cb) == 0 and height % (1 << min_cb) == 0, "7.4.3.2.1",
            f"{width}x{height} is no multiple of MinCbSizeY")  # fmt: skip
    require(r.ue() <= ctb - min_tb and r.ue() <= ctb - min_tb, "7.4.3.2.1", "transform hierarchy depth")
    r.only(r.u(4), 0, "scaling lists, amp, sao, pcm")
    r.only(r.ue(), 0, "num_short_term_ref_pic_sets")
    r.only(r.u(4), 0, "long-term pictures, temporal mvp, strong intra smoothing, vui")
    if r.u(1):
        r.only(r.u(8), 0x80, "sps extensions")
        require(profile == RANGE_EXTENSIONS, "A.3.2", "range extension in Main")
        tools = r.u(9)
        require(tools & 1 == 0, "A.3.5", "cabac_bypass_alignment_enabled_flag")
        require(tools >> 4 & 1 == 0, "A.3.5", "extended_precision_processing_flag")
    r.end()
    max_luma, _, _ = LEVELS[level]
    samples = width * height
    require(samples <= max_luma, "A.4.1", f"{samples} luma samples, level {level / 30:.1f} allows {max_luma}")
    longest = isqrt(8 * max_luma)
    require(max(width, height) <= longest, "A.4.1", f"side {max(width, height)}, the level allows {longest}")
    require(level < 150 or ctb >= 5, "A.4.1", "CtbLog2SizeY below 5 from level 5 on")
    # MaxDpbSize.
    share = next(n for n, most in ((4, 1), (2, 2), (4 / 3, 3), (1, 4)) if 4 * samples <= most * max_luma)
    allowed = min(int(6 * share), 16)
    require(ordering[0] <= allowed, "A.4.2", f"{ordering[0]} pictures buffered, the level allows {allowed}")
    return {"profile": (profile, level), "ordering": ordering, "poc_bits": poc_bits, "level": level}


def check_pps(rbsp):
    r = BitReader(rbsp)
    r.only((r.ue(), r.ue()), (0, 0), "parameter set ids")
    r.only(r.u(7), 0b0000001, "pps flags up to cabac_init_present_flag")
    r.only((r.ue(), r.ue()), (0, 0), "default active references")
    qp = 26 + r.se()
    require(0 <= qp <= 51, "7.4.3.3.1", f"initial QP {qp}")
    r.only(r.u(3), 0, "constrained intra, transform skip, QP delta")
    require(-12 <= r.se() <= 12 and -12 <= r.se() <= 12, "7.4.3.3.1", "chroma QP offset")
    r.only(r.u(3), 0, "chroma offsets, weighted prediction")
    r.only(r.u(1), 1, "transquant_bypass_enabled_flag")
    r.only(r.u(3), 0, "tiles, entropy sync, filter across slices")
    r.only(r.u(3), 0b101, "deblocking control")
    r.only(r.u(2), 0, "scaling lists, list modification")
    r.only(r.ue(), 0, "log2_parallel_merge_level_minus2")
    r.only(r.u(2), 0, "slice header and pps extensions")
    r.end()
    return qp


def check_slice(nal_type, rbsp, sps, qp):
    """Returns the picture order count."""
    r = BitReader(rbsp)
    r.only(r.u(1), 1, "first_slice_segment_in_pic_flag")
    if nal_type == IDR_N_LP:
        r.u(1)  # no_output_of_prior_pics_flag
    r.only(r.ue(), 0, "slice_pic_parameter_set_id")
    slice_type, poc = r.ue(), 0
    if nal_type == IDR_N_LP:
        require(slice_type == 2, "7.4.7.1", "slice of an IDR picture that is not I")
    else:
        r.only(slice_type, 1, "slice_type")
        poc = r.u(sps["poc_bits"])
        r.only(r.u(1), 0, "short_term_ref_pic_set_sps_flag")
        r.only((r.ue(), r.ue()), (1, 0), "reference pictures")
        refers_to = poc - (r.ue() + 1)
        r.only(r.u(1), 1, "used_by_curr_pic_s0_flag")
        require(refers_to == 0, "8.3.2", f"picture {poc} refers to {refers_to}, which is not kept")
        r.only(r.u(1), 0, "num_ref_idx_active_override_flag")
        r.u(1)  # cabac_init_flag
        candidates = 5 - r.ue()
        require(1 <= candidates <= 5, "7.4.7.1", f"MaxNumMergeCand {candidates}")
    require(0 <= qp + r.se() <= 51, "7.4.7.1", "SliceQpY")
    r.byte_alignment("7.3.2.12")
    require(len(rbsp) > r.at // 8, "7.3.8", "no slice data")
    max_bits = LEVELS[sps["level"]][1] * 1100  # CpbNalFactor of both profiles
    require(8 * len(rbsp) <= max_bits, "A.4.2", "a picture larger than the coded picture buffer")
    return poc


def check_stream(stream):
    """The number of pictures; Broken where a rule is."""
    units = split_nal_units(stream)
    require([t for t, _ in units[:4]] == [VPS, SPS, PPS, IDR_N_LP], "unsupported", "order of the NAL units")
    vps, sps, qp = check_vps(units[0][1]), check_sps(units[1][1]), check_pps(units[2][1])
    require(vps == (sps["profile"], sps["ordering"]), "7.4.3.1", "VPS and SPS differ")
    last = -1
    for nal_type, rbsp in units[3:]:
        require(nal_type == (IDR_N_LP if last < 0 else TRAIL_R), "unsupported", f"NAL unit type {nal_type}")
        poc = check_slice(nal_type, rbsp, sps, qp)
        require(poc > last, "8.3.1", f"picture order count {poc} after {last}")
        last = poc
    return len(units) - 3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="+", type=pathlib.Path)
    failed = 0
    for path in parser.parse_args().file:
        try:
            print(f"{path}: {check_stream(path.read_bytes())} pictures")
        except Broken as error:
            failed += 1
            print(f"{path}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
