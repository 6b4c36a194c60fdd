// SPDX-License-Identifier: Apache-2.0
#include "store/s3_xml.h"

#include <expat.h>

#include <charconv>
#include <ctime>
#include <functional>
#include <memory>

#include "base/error.h"

namespace kvcodec {
namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMaxTextBytes = 64 << 10;

// The end of an element: its path ("ListBucketResult/Contents/Key") and its own text.
using OnElement = std::function<Status(std::string_view path, std::string_view text)>;

class XmlReader {
 public:
  explicit XmlReader(OnElement on_element) : on_element_(std::move(on_element)) {}

  Status parse(std::string_view xml) {
    if (xml.size() > INT32_MAX)
      return make_error(ErrorCode::corrupt, "XML of {} bytes", xml.size());
    const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(
        XML_ParserCreate(nullptr), XML_ParserFree);
    if (parser == nullptr) return make_error(ErrorCode::out_of_memory, "no memory for XML");
    parser_ = parser.get();
    XML_SetUserData(parser_, this);
    XML_SetElementHandler(parser_, on_start, on_end);
    XML_SetCharacterDataHandler(parser_, on_text);
    XML_SetStartDoctypeDeclHandler(parser_, on_doctype);
    const auto parsed = XML_Parse(parser_, xml.data(), static_cast<int>(xml.size()), XML_TRUE);
    if (!failed_.ok()) return failed_;
    if (parsed != XML_STATUS_OK) {
      return make_error(ErrorCode::corrupt, "XML, line {}: {}", XML_GetCurrentLineNumber(parser_),
                        XML_ErrorString(XML_GetErrorCode(parser_)));
    }
    return ok_status();
  }

 private:
  void fail(std::string_view why) {
    failed_ =
        make_error(ErrorCode::corrupt, "XML, line {}: {}", XML_GetCurrentLineNumber(parser_), why);
    XML_StopParser(parser_, XML_FALSE);
  }

  static void on_start(void* self, const XML_Char* name, const XML_Char**) {
    auto* reader = static_cast<XmlReader*>(self);
    if (++reader->depth_ > kMaxDepth) return reader->fail("too deep");
    std::string_view local = name;
    // "ns:Name": servers differ in how they write the namespace.
    if (const size_t colon = local.rfind(':'); colon != std::string_view::npos) {
      local.remove_prefix(colon + 1);
    }
    if (!reader->path_.empty()) reader->path_ += '/';
    reader->path_ += local;
    reader->text_.clear();
    if (reader->path_.size() > kMaxTextBytes) reader->fail("a name is too long");
  }
  static void on_end(void* self, const XML_Char*) {
    auto* reader = static_cast<XmlReader*>(self);
    Status seen = reader->on_element_(reader->path_, reader->text_);
    if (!seen.ok()) {
      reader->failed_ = std::move(seen);
      XML_StopParser(reader->parser_, XML_FALSE);
    }
    const size_t slash = reader->path_.rfind('/');
    reader->path_.resize(slash == std::string::npos ? 0 : slash);
    reader->text_.clear();
    --reader->depth_;
  }
  static void on_text(void* self, const XML_Char* text, int size) {
    auto* reader = static_cast<XmlReader*>(self);
    if (reader->text_.size() + static_cast<size_t>(size) > kMaxTextBytes) {
      return reader->fail("a text is too long");
    }
    reader->text_.append(text, static_cast<size_t>(size));
  }
  static void on_doctype(void* self, const XML_Char*, const XML_Char*, const XML_Char*, int) {
    static_cast<XmlReader*>(self)->fail("it declares a document type");
  }

  OnElement on_element_;
  XML_Parser parser_ = nullptr;
  std::string path_, text_;
  int depth_ = 0;
  Status failed_ = ok_status();
};

// "2026-12-01T02:49:04.000Z"; the time of the epoch where it is not one.
std::chrono::system_clock::time_point parse_time(const std::string& text) {
  std::tm parts{};
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return {};
  return std::chrono::system_clock::from_time_t(::timegm(&parts));
}

}  // namespace

S3ErrorReply parse_s3_error(std::string_view xml) {
  S3ErrorReply reply;
  const Status parsed = XmlReader([&](std::string_view path, std::string_view text) {
                          if (path == "Error/Code") reply.code = text;
                          if (path == "Error/Message") reply.message = text;
                          return ok_status();
                        }).parse(xml);
  return parsed.ok() ? reply : S3ErrorReply{};
}

Result<S3Listing> parse_s3_listing(std::string_view xml) {
  S3Listing listing;
  S3Listing::Object object;
  bool is_listing = false, has_size = false;
  KVCODEC_CHECK(XmlReader([&](std::string_view path, std::string_view text) -> Status {
                  constexpr std::string_view kRoot = "ListBucketResult";
                  if (path == kRoot) is_listing = true;
                  if (!path.starts_with("ListBucketResult/")) return ok_status();
                  path.remove_prefix(kRoot.size() + 1);
                  if (path == "IsTruncated") listing.truncated = text == "true";
                  if (path == "NextContinuationToken") listing.next_token = text;
                  if (path == "Contents/Key") object.key = text;
                  if (path == "Contents/LastModified")
                    object.modified = parse_time(std::string(text));
                  if (path == "Contents/Size") {
                    const auto [end, failed] =
                        std::from_chars(text.data(), text.data() + text.size(), object.bytes);
                    has_size = failed == std::errc{} && end == text.data() + text.size();
                  }
                  if (path != "Contents") return ok_status();
                  if (object.key.empty() || !has_size) {
                    return make_error(ErrorCode::corrupt, "listing: object {} has no key or size",
                                      listing.objects.size());
                  }
                  listing.objects.push_back(std::exchange(object, {}));
                  has_size = false;
                  return ok_status();
                }).parse(xml));
  if (!is_listing) return make_error(ErrorCode::corrupt, "XML: expected a ListBucketResult");
  if (listing.truncated && listing.next_token.empty()) {
    return make_error(ErrorCode::corrupt, "listing: it goes on, but without a token for the rest");
  }
  return listing;
}

Result<std::string> parse_s3_upload_id(std::string_view xml) {
  std::string id;
  KVCODEC_CHECK(XmlReader([&](std::string_view path, std::string_view text) {
                  if (path == "InitiateMultipartUploadResult/UploadId") id = text;
                  return ok_status();
                }).parse(xml));
  if (id.empty()) return make_error(ErrorCode::corrupt, "XML: expected an UploadId");
  return id;
}

Result<std::string> parse_s3_complete(std::string_view xml) {
  std::string code;
  bool complete = false;
  KVCODEC_CHECK(XmlReader([&](std::string_view path, std::string_view text) {
                  if (path == "CompleteMultipartUploadResult") complete = true;
                  if (path == "Error/Code") code = text;
                  return ok_status();
                }).parse(xml));
  if (!complete && code.empty()) {
    return make_error(ErrorCode::corrupt, "XML: expected a CompleteMultipartUploadResult");
  }
  return complete ? std::string() : code;
}

}  // namespace kvcodec
