// The one source file that compiles Asio's implementation.
#include <boost/asio/impl/src.hpp>
