// Takes down what a Corefile was read from, as one digest: two readings with the same digest come to the same. Environment
// variables are no part of it, since they stay as they are for as long as a process lives. One thread.
#pragma once

#include "config/environment.h"

namespace idetcd::config {

class RecordingEnvironment final : public Environment {
 public:
  // `environment` answers; it must outlive this one. `corefile`: its text, or what was wrong with it.
  RecordingEnvironment(const Environment& environment, std::string_view corefile);

  // The SHA-512 of the Corefile, where it imports no file: sha512sum(1) of the file says the same. Else that of a list of
  // all that was looked for, found and read until now.
  std::string digest() const;

  std::string variable(std::string_view name) const override;
  std::string absolutePath(const std::string& path) const override;
  std::vector<std::string> glob(const std::string& pattern) const override;
  Result<std::string> readFile(const std::string& path, size_t max_bytes) const override;

 private:
  void note(std::string_view what, std::string_view text) const;

  const Environment& environment_;
  const std::string corefile_digest_;
  mutable std::string imports_;  // a line each; empty: none
};

}  // namespace idetcd::config
