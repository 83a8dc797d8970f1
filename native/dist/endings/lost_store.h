// Words the error of a rank that loses its store inside libtorch. The client of 1.13 listens on a thread of its own, and if a connection is
// reset while it reads, nobody catches the exception.
#pragma once
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <string>
#include <system_error>

namespace attune {

/** Whether an exception says that the other side of a connection has gone. */
inline bool saysConnectionLost(const std::exception_ptr& exception, std::string& text) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::system_error& error) {
    const int code = error.code().value();
    text = error.what();
    return code == ECONNRESET || code == EPIPE || code == ENOTCONN || code == ECONNABORTED;
  } catch (...) {
    return false;
  }
}

/**
 * If such an exception is about to end the process by abort(), ends it with a readable message instead. Every other exception ends it as
 * before.
 */
inline void speakWhenStoreIsLost() {
  static const std::terminate_handler before = std::get_terminate();
  std::set_terminate([] {
    const std::exception_ptr exception = std::current_exception();
    std::string text;
    if (exception && saysConnectionLost(exception, text)) {
      const std::string line = "attune: The store of rank 0 does not answer (" + text + "): rank 0 has ended.\n";
      if (write(STDERR_FILENO, line.data(), line.size()) < 0) abort();
      _exit(1);
    }
    before();
    abort();
  });
}

}  // namespace attune
