// SPDX-License-Identifier: Apache-2.0
extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/error.h>
#include <libavutil/frame.h>
}

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/parallel.h"
#include "hevc/cabac_tables.h"
#include "hevc/decoder.h"
#include "hevc/stream.h"

namespace kvcodec::hevc {
namespace {

template <auto free_pointer>
struct AvFree {
  template <typename T>
  void operator()(T* object) const {
    free_pointer(&object);
  }
};
using ContextPointer = std::unique_ptr<AVCodecContext, AvFree<avcodec_free_context>>;
using PacketPointer = std::unique_ptr<AVPacket, AvFree<av_packet_free>>;
using FramePointer = std::unique_ptr<AVFrame, AvFree<av_frame_free>>;

uint64_t coded_samples(const StreamParameters& parameters) {
  return uint64_t{blocks_of(parameters.width) * kBlock} * (blocks_of(parameters.height) * kBlock);
}

Error libavcodec_error(const char* call, int code) {
  std::array<char, AV_ERROR_MAX_STRING_SIZE> text = {};
  av_strerror(code, text.data(), text.size());
  const ErrorCode kind = code == AVERROR(ENOMEM) ? ErrorCode::out_of_memory : ErrorCode::corrupt;
  return make_error(kind, "libavcodec {}: {}", call, text.data());
}

// libavcodec reports no error where a slice ends early: such samples must not be what an earlier
// picture left in the buffer.
int get_flat_buffer(AVCodecContext* context, AVFrame* frame, int flags) {
  const int code = avcodec_default_get_buffer2(context, frame, flags);
  if (code < 0) return code;
  for (const AVBufferRef* buffer : frame->buf) {
    if (buffer != nullptr) std::memset(buffer->data, 128, buffer->size);
  }
  return 0;
}

// One stream in one single-threaded codec context. Invariant between calls: every frame of what
// was sent has been received. After an error a session must be thrown away.
class Session {
 public:
  static Result<std::unique_ptr<Session>> open(const StreamParameters& parameters) {
    auto session = std::unique_ptr<Session>(new Session(parameters));
    const AVCodec* codec = avcodec_find_decoder(AV_CODEC_ID_HEVC);
    session->context_.reset(avcodec_alloc_context3(codec));
    session->packet_.reset(av_packet_alloc());
    session->frame_.reset(av_frame_alloc());
    if (!session->context_ || !session->packet_ || !session->frame_) {
      return make_error(ErrorCode::out_of_memory, "libavcodec: no memory for a decoder");
    }
    AVCodecContext& context = *session->context_;
    context.thread_count = 1;
    context.flags |= AV_CODEC_FLAG_LOW_DELAY;
    context.err_recognition = AV_EF_EXPLODE;
    // Buffers are aligned to no more than this.
    context.max_pixels = static_cast<int64_t>(
        coded_samples({parameters.width + 128, parameters.height + 128, false}));
    context.thread_type = FF_THREAD_SLICE;  // of no effect with one thread, but frame threads warn
    context.get_buffer2 = get_flat_buffer;
    context.log_level_offset = 100;  // no message, whatever the application lets libavutil print
    if (const int code = avcodec_open2(&context, codec, nullptr); code < 0) {
      return libavcodec_error("avcodec_open2", code);
    }
    return session;
  }

  const StreamParameters& parameters() const { return parameters_; }

  Status decode(std::span<const uint8_t> slice_data, const PictureTarget& target) {
    if (pictures_ == kMaxPicturesPerStart) {
      const std::vector<uint8_t> start = stream_start(parameters_);
      KVCODEC_CHECK(decode_packet(start, {}));
      pictures_ = 0;
    }
    ++pictures_;
    KVCODEC_CHECK(decode_packet(picture_header(parameters_, pictures_), slice_data));
    for (uint32_t y = 0; y < target.height; ++y) {
      std::memcpy(target.samples + y * target.stride,
                  frame_->data[0] + static_cast<ptrdiff_t>(y) * frame_->linesize[0], target.width);
    }
    return ok_status();
  }

 private:
  explicit Session(const StreamParameters& parameters) : parameters_(parameters) {}

  // Decodes one access unit, head and tail together, into frame_.
  Status decode_packet(std::span<const uint8_t> head, std::span<const uint8_t> tail) {
    input_.clear();
    input_.insert(input_.end(), head.begin(), head.end());
    input_.insert(input_.end(), tail.begin(), tail.end());
    input_.resize(input_.size() + AV_INPUT_BUFFER_PADDING_SIZE);
    packet_->data = input_.data();
    packet_->size = static_cast<int>(head.size() + tail.size());
    packet_->pts = ++packet_number_;
    if (const int code = avcodec_send_packet(context_.get(), packet_.get()); code < 0) {
      return libavcodec_error("avcodec_send_packet", code);
    }
    int code = receive_frame();
    if (code == AVERROR(EAGAIN)) {  // held back: take it out; the context then needs a new start
      avcodec_send_packet(context_.get(), nullptr);
      code = receive_frame();
      avcodec_flush_buffers(context_.get());
      pictures_ = kMaxPicturesPerStart;
    }
    if (code < 0) return libavcodec_error("avcodec_receive_frame", code);
    return check_frame();
  }

  // The frame of the packet just sent; earlier ones are dropped.
  int receive_frame() {
    int code;
    do {
      code = avcodec_receive_frame(context_.get(), frame_.get());
    } while (code == 0 && frame_->pts != packet_number_);
    return code;
  }

  Status check_frame() const {
    const auto width = static_cast<int>(parameters_.width);
    const auto height = static_cast<int>(parameters_.height);
    if (frame_->width != width || frame_->height != height ||
        frame_->format != AV_PIX_FMT_YUV420P) {
      return make_error(ErrorCode::corrupt,
                        "decoded picture: expected {}x{} yuv420p, found {}x{} of format {}", width,
                        height, frame_->width, frame_->height, frame_->format);
    }
    if (frame_->decode_error_flags != 0 || (frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0) {
      return make_error(ErrorCode::corrupt,
                        "decoded picture: libavcodec marks it as damaged (errors {:#x})",
                        frame_->decode_error_flags);
    }
    return ok_status();
  }

  const StreamParameters parameters_;
  ContextPointer context_;
  PacketPointer packet_;
  FramePointer frame_;
  std::vector<uint8_t> input_;
  int64_t packet_number_ = 0;
  uint32_t pictures_ = kMaxPicturesPerStart;  // since the last start; at the limit: none sent
};

// Sessions that nobody uses, least recently used first. Thread-safe.
class SessionPool {
 public:
  SessionPool(size_t max_sessions, uint64_t max_samples)
      : max_sessions_(max_sessions), max_samples_(max_samples) {}

  Result<std::unique_ptr<Session>> acquire(const StreamParameters& parameters) {
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = idle_.size(); i-- > 0;) {
        if (idle_[i]->parameters() == parameters) {
          std::unique_ptr<Session> session = std::move(idle_[i]);
          idle_.erase(idle_.begin() + static_cast<ptrdiff_t>(i));
          samples_ -= coded_samples(parameters);
          return session;
        }
      }
    }
    return Session::open(parameters);
  }

  void release(std::unique_ptr<Session> session) {
    std::vector<std::unique_ptr<Session>> evicted;  // freed after the lock
    const std::lock_guard lock(mutex_);
    samples_ += coded_samples(session->parameters());
    idle_.push_back(std::move(session));
    while (idle_.size() > 1 && (idle_.size() > max_sessions_ || samples_ > max_samples_)) {
      samples_ -= coded_samples(idle_.front()->parameters());
      evicted.push_back(std::move(idle_.front()));
      idle_.erase(idle_.begin());
    }
  }

 private:
  const size_t max_sessions_;
  const uint64_t max_samples_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Session>> idle_;
  uint64_t samples_ = 0;
};

class AvcodecDecoder final : public Decoder {
 public:
  explicit AvcodecDecoder(int threads)
      : threads_(threads),
        // An idle session keeps about three pictures of 1.5 bytes a sample.
        sessions_(4 * static_cast<size_t>(threads), (uint64_t{32} << 20) * threads) {}

  const char* name() const override { return "libavcodec"; }

  void decode(std::span<DecodeJob> jobs, int threads) override {
    parallel_for(jobs.size(), threads > 0 ? std::min(threads, threads_) : threads_,
                 [&](size_t i, int) { jobs[i].status = decode(jobs[i]); });
  }

 private:
  Status decode(const DecodeJob& job) {
    KVCODEC_CHECK(check_job(job));
    KVCODEC_TRY(auto session, sessions_.acquire(job.parameters));
    Status status = session->decode(job.slice_data, job.target);
    if (status.ok()) sessions_.release(std::move(session));
    return status;
  }

  const int threads_;
  SessionPool sessions_;
};

}  // namespace

Result<std::unique_ptr<Decoder>> create_general_decoder(int threads) {
  if (avcodec_find_decoder(AV_CODEC_ID_HEVC) == nullptr) {
    return make_error(ErrorCode::unsupported, "this libavcodec has no HEVC decoder");
  }
  return std::unique_ptr<Decoder>(new AvcodecDecoder(resolve_threads(threads)));
}

}  // namespace kvcodec::hevc
