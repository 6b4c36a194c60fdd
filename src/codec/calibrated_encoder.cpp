// SPDX-License-Identifier: Apache-2.0
#include "codec/calibrated_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "codec/calibrated_tier.h"
#include "codec/encode_request.h"
#include "transform/basis_product.h"

namespace kvcodec {

CalibratedEncoder::CalibratedEncoder(const KvSource& source, TokenRange range,
                                     const EncodeOptions& options, format::Header header)
    : PendingChunk(std::move(header), options.profile),
      source_(source),
      range_(range),
      options_(options),
      profile_(*options.profile),
      plans_(plan_groups(header_)),
      panels_(plan_panels(plans_.size(), range.count)),
      turns_(header_.rope, header_.id.first_token, header_.tokens),
      components_(plans_.size()),
      samples_(plans_.size()),
      escapes_(plans_.size()),
      distortions_(panels_.size()) {}

// Codes at options.tier or the finest that is needed; false where none is fine enough.
Result<bool> CalibratedEncoder::quantise() {
  const double budget = noise_budget();
  for (size_t tier = tier_index(options_.tier) + 1; tier-- > 0;) {
    header_.tier = kCalibratedTiers[tier];
    KVCODEC_CHECK(analyse(profile_.tier(header_.tier).step));
    const Status codes = quantise_groups();
    if (!codes.ok()) {
      if (budget == 0) return codes.error();
      return false;  // nothing that a smaller step would mend
    }
    header_.escapes.clear();
    for (const auto& escapes : escapes_)
      header_.escapes.insert(header_.escapes.end(), escapes.begin(), escapes.end());
    KVCODEC_CHECK(measure());
    for (size_t g = 0; g < header_.groups.size(); ++g) record(g, header_.groups[g]);
    if (budget == 0 || total_noise() <= budget) return !too_many_escapes();
  }
  return false;
}

void CalibratedEncoder::fill_pictures() {
  components_ = {};
  header_.pictures = format::layout_pictures(header_);
  const std::vector<GroupPlan> plans = plan_groups(header_);
  contents_.resize(header_.pictures.size());
  for (size_t g = 0; g < plans.size(); ++g) fill_pictures(plans[g], std::exchange(samples_[g], {}));
}

std::vector<std::byte> CalibratedEncoder::gather(const Panel& panel) const {
  const GroupPlan& plan = plans_[panel.group];
  std::vector<std::byte> rows(profile_.groups()[panel.group].mean.size() * panel.tokens.count *
                              dtype_bytes(header_.shape.dtype));
  layout::gather_rows(source_, plan.kind, plan.layers,
                      {range_.first + panel.tokens.first, panel.tokens.count}, rows.data());
  return rows;
}

std::vector<uint32_t> CalibratedEncoder::add_components(double step) {
  std::vector<uint32_t> known;
  for (size_t g = 0; g < components_.size(); ++g) {
    uint32_t& count = components_[g].count;
    known.push_back(count);
    count = std::max(count, audible_components(profile_.groups()[g], step));
  }
  return known;
}

Status CalibratedEncoder::analyse(double step) {
  const std::vector<uint32_t> known = add_components(step);
  bool more = false;
  for (size_t g = 0; g < components_.size(); ++g) {
    Components& components = components_[g];
    components.row = transform::padded_columns(range_.count);
    components.values.resize(components.count * components.row);
    more |= components.count > known[g];
  }
  if (!more) return ok_status();
  std::vector<Status> statuses(panels_.size(), ok_status());
  parallel_for(panels_.size(), options_.threads, [&](size_t i, int) {
    const std::vector<std::byte> rows = gather(panels_[i]);
    keep_sinks(panels_[i], rows.data());
    const size_t g = panels_[i].group;
    if (known[g] < components_[g].count)
      statuses[i] = analyse_panel(context(), panels_[i], rows.data(), known[g], components_[g]);
  });
  for (Status& status : statuses) KVCODEC_CHECK(std::move(status));
  return ok_status();
}

void CalibratedEncoder::keep_sinks(const Panel& panel, const std::byte* rows) {
  const GroupPlan& plan = plans_[panel.group];
  const size_t width = header_.shape.channels(plan.kind), n = panel.tokens.count;
  const size_t element = dtype_bytes(header_.shape.dtype);
  const uint32_t end = panel.tokens.first + panel.tokens.count;
  for (uint32_t t = panel.tokens.first; t < std::min(header_.sink_tokens, end); ++t) {
    for (uint32_t layer = 0; layer < plan.layers.count; ++layer) {
      std::byte* sink =
          header_.sinks.data() + sink_offset(header_, plan.kind, plan.layers.first + layer, t);
      for (size_t c = 0; c < width; ++c)
        std::memcpy(sink + c * element,
                    rows + ((layer * width + c) * n + t - panel.tokens.first) * element, element);
    }
  }
}

Status CalibratedEncoder::quantise_groups() {
  std::vector<Status> statuses(plans_.size(), ok_status());
  parallel_for(plans_.size(), options_.threads, [&](size_t g, int) {
    statuses[g] =
        quantise_components(profile_.tier(header_.tier), components_[g], range_.count,
                            plans_[g].rows.first_row, header_.groups[g], samples_[g], escapes_[g]);
  });
  for (Status& status : statuses) KVCODEC_CHECK(std::move(status));
  return ok_status();
}

Status CalibratedEncoder::measure() {
  parallel_for(panels_.size(), options_.threads, [&](size_t i, int) {
    const Panel& panel = panels_[i];
    const std::vector<std::byte> exact = gather(panel);
    std::vector<std::byte> restored(exact.size());
    restore_panel(context(), panel, LiveSamples(samples_[panel.group].data(), range_.count),
                  header_.escapes, restored.data());
    distortions_[i] = measure_panel(context(), panel, exact.data(), restored.data());
  });
  return ok_status();
}

void CalibratedEncoder::record(size_t index, format::BasisGroup& group) const {
  PanelDistortion sum;
  for (size_t i = 0; i < panels_.size(); ++i) {
    if (panels_[i].group != index) continue;
    sum.noise += distortions_[i].noise;
    sum.energy += distortions_[i].energy;
  }
  const double values = static_cast<double>(profile_.groups()[index].mean.size()) *
                        (header_.tokens - header_.sink_tokens);
  const auto finite = [](double x) {
    return static_cast<float>(std::min<double>(x, std::numeric_limits<float>::max()));
  };
  group.noise = values == 0 ? 0 : finite(sum.noise / values);
  group.relative_error = sum.energy == 0 ? 0 : finite(std::sqrt(sum.noise / sum.energy));
}

// Of the whole chunk, a token: what the damage to a continuation follows.
double CalibratedEncoder::total_noise() const {
  double sum = 0;
  for (size_t g = 0; g < header_.groups.size(); ++g)
    sum += double{header_.groups[g].noise} * static_cast<double>(profile_.groups()[g].mean.size());
  return sum;
}

// 0: none.
double CalibratedEncoder::noise_budget() const {
  double sum = 0;
  for (const ProfileGroup& group : profile_.groups()) {
    const float expected = group.expected_noise[tier_index(options_.tier)];
    if (expected == 0) return 0;
    sum += double{expected} * static_cast<double>(group.mean.size());
  }
  return options_.noise_factor * sum;
}

// At 16 bytes an escape, 8 bits a value would be smaller.
bool CalibratedEncoder::too_many_escapes() const {
  uint64_t values = 0;
  for (const ProfileGroup& group : profile_.groups()) values += group.mean.size();
  return options_.noise_factor > 0 &&
         header_.escapes.size() > values * header_.tokens / format::kEscapeBytes;
}

void CalibratedEncoder::fill_pictures(const GroupPlan& plan, const std::vector<uint8_t>& samples) {
  const uint8_t* from = samples.data();
  for (size_t index : plan.symbols) {
    const format::Picture& picture = header_.pictures[index];
    PictureContent& content = contents_[index];
    content.stride = picture.width;
    content.samples.assign(size_t{picture.width} * picture.height, uint8_t{128});
    for (uint32_t row = 0; row < picture.rows; ++row, from += header_.tokens)
      std::memcpy(content.samples.data() + row * content.stride, from, header_.tokens);
  }
}

Status CalibratedEncoder::compare(const DecodedChunk& decoded) const {
  std::vector<uint8_t> same(panels_.size());
  parallel_for(panels_.size(), options_.threads, [&](size_t i, int) {
    const std::vector<std::byte> exact = gather(panels_[i]);
    const std::vector<std::byte> restored = restore_unit(decoded, i);
    const PanelDistortion found =
        measure_panel(context(), panels_[i], exact.data(), restored.data());
    same[i] = found.noise == distortions_[i].noise && found.energy == distortions_[i].energy;
  });
  const auto wrong = std::find(same.begin(), same.end(), 0);
  if (wrong == same.end()) return ok_status();
  const Panel& panel = panels_[static_cast<size_t>(wrong - same.begin())];
  return make_error(ErrorCode::internal,
                    "the encoded object restores other values: {} layers from {}, tokens {} to {}",
                    kv_kind_name(plans_[panel.group].kind), plans_[panel.group].layers.first,
                    panel.tokens.first, panel.tokens.first + panel.tokens.count - 1);
}

Result<std::unique_ptr<PendingChunk>> prepare_calibrated(const KvSource& source, TokenRange range,
                                                         const ChunkId& id,
                                                         const EncodeOptions& options) {
  {
    format::Header header =
        start_header(source.geometry->shape, range.count, id, options, EncoderTuning{});
    auto encoder = std::make_unique<CalibratedEncoder>(source, range, options, std::move(header));
    KVCODEC_TRY(const bool fits, encoder->quantise());
    if (fits) {
      encoder->fill_pictures();
      return std::unique_ptr<PendingChunk>(std::move(encoder));
    }
  }
  const EncodeOptions finer = int8_instead(options);
  KVCODEC_CHECK(check_request(source, range, id, finer));
  return prepare_chunk(source, range, id, finer, EncoderTuning{});
}

EncodeOptions int8_instead(const EncodeOptions& options) {
  EncodeOptions finer = options;
  finer.tier = Tier::int8;
  finer.rope = options.profile->rope();
  return finer;
}

}  // namespace kvcodec
