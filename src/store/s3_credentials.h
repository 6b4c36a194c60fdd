// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kvcodec/result.h"
#include "store/s3_sign.h"

namespace kvcodec {

struct S3Profile {
  S3Credentials credentials;
  std::string region, endpoint;  // empty where nothing says
};

// The keys, region and endpoint of a user, from where AWS's own tools find them: the environment
// (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION, AWS_DEFAULT_REGION,
// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL), then the files ~/.aws/credentials and ~/.aws/config
// (AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE) for `profile` (empty: AWS_PROFILE, or "default").
// A profile that is named goes before the environment's keys. io where a file cannot be read,
// invalid_argument where half a key is there or the profile is not, unsupported where it gets its
// keys by a program, SSO or a role.
Result<S3Profile> load_s3_profile(const std::string& profile);

}  // namespace kvcodec
