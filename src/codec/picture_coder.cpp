// SPDX-License-Identifier: Apache-2.0
#include "codec/picture_coder.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "hevc/encoder.h"
#include "hevc/persistent_rice.h"

namespace kvcodec {
namespace {

// Above this entropy HEVC's 4 to 6 % on top of it leave nothing to gain over 8 raw bits.
constexpr double kRawFromEntropy = 7.7;

// Order 0, bits a sample.
double entropy_of(std::span<const uint8_t> samples) {
  std::array<uint32_t, 256> counts{};
  for (uint8_t sample : samples) ++counts[sample];
  double entropy = 0;
  for (uint32_t count : counts) {
    const double share = count / static_cast<double>(samples.size());
    if (share > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

// Rows of `stride` samples to rows of `tokens`.
void drop_padding(PictureContent& content, uint32_t rows, uint32_t tokens) {
  if (content.stride != tokens) {
    for (size_t row = 1; row < rows; ++row)
      std::memmove(content.samples.data() + row * tokens,
                   content.samples.data() + row * content.stride, tokens);
    content.stride = tokens;
  }
  content.samples.resize(size_t{rows} * tokens);
}

// A symbols picture on its way to its coding.
struct SymbolsPicture {
  uint32_t tokens;
  format::Picture* picture;
  PictureContent* content;
  std::vector<uint8_t> padded;  // rows of the coded width, where that is not the stored one
  bool worth_coding = false;
  std::vector<uint8_t> slice;
};

// The samples that are stored as they are, in place of those that are encoded; what is to encode.
hevc::EncodeJob prepare_samples(SymbolsPicture& symbols) {
  format::Picture& picture = *symbols.picture;
  PictureContent& content = *symbols.content;
  const size_t size = size_t{picture.rows} * symbols.tokens;
  if (content.samples.size() != size) {
    symbols.padded = content.samples;
    drop_padding(content, picture.rows, symbols.tokens);
  }
  const std::vector<uint8_t>& coded = symbols.padded.empty() ? content.samples : symbols.padded;
  picture.content_checksum = checksum64(std::as_bytes(std::span(content.samples)));
  symbols.worth_coding = entropy_of(content.samples) < kRawFromEntropy;
  hevc::EncodeJob job;
  job.picture = {coded.data(), picture.width, picture.height, picture.width};
  job.persistent_rice = symbols.worth_coding && hevc::persistent_rice_pays(job.picture);
  job.slice_data = &symbols.slice;
  return job;
}

// Takes the slice, or the samples where they are shorter.
void choose_coding(bool persistent_rice, SymbolsPicture& symbols) {
  format::Picture& picture = *symbols.picture;
  PictureContent& content = *symbols.content;
  const bool coded = symbols.worth_coding && symbols.slice.size() < content.samples.size();
  picture.coding = !coded            ? format::Coding::raw
                   : persistent_rice ? format::Coding::hevc_rice
                                     : format::Coding::hevc;
  const auto bytes = std::as_bytes(std::span(coded ? symbols.slice : content.samples));
  content.stored.assign(bytes.begin(), bytes.end());
}

Status encode_symbols(std::span<SymbolsPicture> symbols, int threads,
                      const EncodePictures& encode) {
  std::vector<hevc::EncodeJob> jobs(symbols.size());
  parallel_for(symbols.size(), threads,
               [&](size_t i, int) { jobs[i] = prepare_samples(symbols[i]); });
  std::vector<hevc::EncodeJob> coded;
  for (size_t i = 0; i < jobs.size(); ++i)
    if (symbols[i].worth_coding) coded.push_back(jobs[i]);
  KVCODEC_CHECK(encode(coded, threads));
  for (size_t i = 0; i < jobs.size(); ++i) choose_coding(jobs[i].persistent_rice, symbols[i]);
  return ok_status();
}

// The process's decoder, for all cores; callers say how many threads they may use.
hevc::Decoder& software_decoder() {
  static const std::unique_ptr<hevc::Decoder> decoder = hevc::create_software_decoder(0);
  return *decoder;
}

std::string picture_place(size_t index, const format::Picture& picture) {
  return fmt::format("picture {} ({} rows from {}) at offset {}", index, kv_kind_name(picture.kind),
                     picture.first_row, picture.offset);
}

Status check_payload(const format::Header& header, size_t index, const PictureContent& content) {
  const format::Picture& picture = header.pictures[index];
  const uint64_t checksum = checksum64(content.payload);
  if (checksum == picture.payload_checksum) return ok_status();
  return make_error(ErrorCode::corrupt,
                    "{}: checksum of the stored bytes: expected {:016x}, found {:016x}",
                    picture_place(index, picture), picture.payload_checksum, checksum);
}

// One picture of one of the objects.
struct Load {
  PicturesToLoad* object;
  size_t index;
  Status status = ok_status();
  hevc::DecodeJob job;  // of coded symbols

  const format::Header& header() const { return *object->header; }
  const format::Picture& picture() const { return header().pictures[index]; }
  PictureContent& content() const { return object->contents[index]; }
  bool is_coded() const {
    return picture().plane == format::Plane::symbols && picture().coding != format::Coding::raw;
  }
};

// Copies symbols that are not coded, or makes the room and the job for those that are.
void prepare_samples(Load& load) {
  const format::Picture& picture = load.picture();
  if (picture.plane != format::Plane::symbols) return;
  PictureContent& content = load.content();
  const auto* bytes = reinterpret_cast<const uint8_t*>(content.payload.data());
  if (!load.is_coded()) {
    content.stride = load.header().tokens;
    content.samples.assign(bytes, bytes + content.payload.size());
    return;
  }
  content.stride = picture.width;
  content.samples.resize(size_t{picture.width} * picture.height);
  const bool rice = picture.coding == format::Coding::hevc_rice;
  load.job.parameters = {picture.width, picture.height, rice};
  load.job.slice_data = {bytes, content.payload.size()};
  load.job.target = {content.samples.data(), picture.width, picture.height, picture.width};
}

// Checks what was decoded.
Status finish_samples(const Load& load) {
  const format::Picture& picture = load.picture();
  PictureContent& content = load.content();
  if (!load.job.status.ok()) {
    return make_error(load.job.status.error().code, "{}: {}", picture_place(load.index, picture),
                      load.job.status.error().message);
  }
  drop_padding(content, picture.rows, load.header().tokens);
  const uint64_t checksum = checksum64(std::as_bytes(std::span(content.samples)));
  if (checksum == picture.content_checksum) return ok_status();
  return make_error(ErrorCode::corrupt,
                    "{}: checksum of the decoded samples: expected {:016x}, found {:016x}",
                    picture_place(load.index, picture), picture.content_checksum, checksum);
}

// Gives each object the error of its first faulty picture, and leaves the pictures of those that
// have none.
void settle(std::vector<Load>& loads) {
  for (Load& load : loads) {
    if (load.object->status.ok() && !load.status.ok()) load.object->status = std::move(load.status);
  }
  std::erase_if(loads, [](const Load& load) { return !load.object->status.ok(); });
}

}  // namespace

Status encode_on_host(std::span<hevc::EncodeJob> jobs, int threads) {
  hevc::encode_pictures(jobs, threads);
  return ok_status();
}

Status store_pictures(std::span<const PicturesToStore> chunks, int threads,
                      const EncodePictures& encode) {
  std::vector<SymbolsPicture> symbols;
  for (const PicturesToStore& chunk : chunks) {
    for (size_t i = 0; i < chunk.pictures.size(); ++i) {
      if (chunk.pictures[i].plane == format::Plane::symbols) {
        symbols.push_back({chunk.tokens, &chunk.pictures[i], &chunk.contents[i], {}, false, {}});
      }
    }
  }
  KVCODEC_CHECK(encode_symbols(symbols, threads, encode));
  symbols = {};
  for (const PicturesToStore& chunk : chunks) {
    parallel_for(chunk.pictures.size(), threads, [&](size_t i, int) {
      format::Picture& picture = chunk.pictures[i];
      PictureContent& content = chunk.contents[i];
      content.samples = {};
      picture.bytes = content.stored.size();
      picture.payload_checksum = checksum64(content.stored);
      if (picture.coding == format::Coding::raw)
        picture.content_checksum = picture.payload_checksum;
    });
  }
  return ok_status();
}

void load_pictures(std::span<PicturesToLoad> objects, int threads) {
  std::vector<Load> loads;
  for (PicturesToLoad& object : objects) {
    for (size_t i = 0; i < object.contents.size(); ++i)
      loads.push_back({&object, i, ok_status(), {}});
  }
  parallel_for(loads.size(), threads, [&](size_t i, int) {
    Load& load = loads[i];
    load.content().payload =
        load.object->object.subspan(load.picture().offset, load.picture().bytes);
    load.status = check_payload(load.header(), load.index, load.content());
  });
  settle(loads);
  parallel_for(loads.size(), threads, [&](size_t i, int) { prepare_samples(loads[i]); });
  std::vector<hevc::DecodeJob> jobs;
  for (const Load& load : loads)
    if (load.is_coded()) jobs.push_back(load.job);
  software_decoder().decode(jobs, threads);
  auto job = jobs.begin();
  for (Load& load : loads)
    if (load.is_coded()) load.job = std::move(*job++);
  parallel_for(loads.size(), threads, [&](size_t i, int) {
    if (loads[i].is_coded()) loads[i].status = finish_samples(loads[i]);
  });
  settle(loads);
}

}  // namespace kvcodec
