// One vector read with davix, the HTTP library of physics readers: `davix_read URL`, with "offset size" lines on standard input.
// Writes the bytes, one range after the other, to standard output.
#include <davix.hpp>

#include <cstdio>
#include <fcntl.h>
#include <list>
#include <string>
#include <vector>

static int failed(const char *what, Davix::DavixError *error) {
    fprintf(stderr, "%s: %s\n", what, error ? error->getErrMsg().c_str() : "?");
    return 1;
}

int main(int, char **arguments) {
    std::list<std::string> memory;
    std::vector<Davix::DavIOVecInput> wanted;
    long offset, size;
    while (scanf("%ld %ld", &offset, &size) == 2) {
        memory.emplace_back(size, '\0');
        Davix::DavIOVecInput one;
        one.diov_offset = offset, one.diov_size = size, one.diov_buffer = &memory.back()[0];
        wanted.push_back(one);
    }
    std::vector<Davix::DavIOVecOuput> got(wanted.size());
    Davix::Context context;
    Davix::RequestParams parameters;
    Davix::DavPosix posix(&context);
    Davix::DavixError *error = nullptr;
    // Without the fragment davix would join ranges that are nearer than 2,000 bytes by itself.
    DAVIX_FD *file = posix.open(&parameters, std::string(arguments[1]) + "#mergewindow=0", O_RDONLY, &error);
    if (!file) return failed("open", error);
    if (posix.preadVec(file, wanted.data(), got.data(), wanted.size(), &error) < 0 || error) return failed("preadVec", error);
    for (const std::string &part : memory) fwrite(part.data(), 1, part.size(), stdout);
    return 0;
}
