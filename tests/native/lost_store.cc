// An exception that nobody catches, on a thread of its own: that of a lost connection, or another one.
#include "dist/endings/lost_store.h"

#include <stdexcept>
#include <thread>

int main(int count, char**) {
  attune::speakWhenStoreIsLost();
  attune::speakWhenStoreIsLost();
  std::thread([&] {
    if (count > 1) throw std::runtime_error("another one");
    throw std::system_error(ECONNRESET, std::system_category());
  }).join();
}
