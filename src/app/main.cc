#include <cstdio>
#include <exception>

#include "app/run.h"

int main(int argc, char** argv) {
  try {
    return idetcd::app::run({argv, static_cast<size_t>(argc)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "idetcd: %s\n", error.what());
    return 1;
  }
}
