#include "proto/assert.h"
#include "proto/bytes.h"
#include "trainer/pickle.h"
#include "trainer/pickle_opcodes.h"

#include <array>
#include <bit>
#include <limits>

namespace ddprun::trainer {

namespace {

class Writer {
public:
    explicit Writer(std::string& out) : out_(out), bytes_(out) {}

    void value(const PickleValue& value) {
        std::visit([this](const auto& alternative) { write(alternative); }, value.value);
    }

    void code(char opcode) { out_.push_back(opcode); }

private:
    void write(PickleNone) { code(opcode::kNone); }

    void write(bool value) { code(value ? opcode::kNewTrue : opcode::kNewFalse); }

    void write(std::int64_t value) {
        if (value >= std::numeric_limits<std::int32_t>::min() &&
            value <= std::numeric_limits<std::int32_t>::max()) {
            code(opcode::kBinInt);
            bytes_.i32(static_cast<std::int32_t>(value));
            return;
        }
        code(opcode::kLong1);
        bytes_.u8(sizeof value);
        bytes_.i64(value);
    }

    void write(double value) {
        code(opcode::kBinFloat);
        // Big-endian, unlike everything else.
        const auto bits = std::bit_cast<std::uint64_t>(value);
        for (int shift = 56; shift >= 0; shift -= 8) {
            bytes_.u8(static_cast<std::uint8_t>(bits >> static_cast<unsigned>(shift)));
        }
    }

    void write(const std::string& text) {
        code(opcode::kBinUnicode);
        bytes_.string32(text);
    }

    void write(const PickleList& list) {
        code(opcode::kEmptyList);
        code(opcode::kMark);
        for (const PickleValue& item : list) {
            value(item);
        }
        code(opcode::kAppends);
    }

    void write(const PickleTuple& tuple) {
        code(opcode::kMark);
        for (const PickleValue& item : tuple.items) {
            value(item);
        }
        code(opcode::kTuple);
    }

    void write(const PickleDict& dict) {
        if (dict.ordered) {
            global("collections", "OrderedDict");
            code(opcode::kEmptyTuple);
            code(opcode::kReduce);
        } else {
            code(opcode::kEmptyDict);
        }
        code(opcode::kMark);
        for (const auto& [key, item] : dict.items) {
            value(key);
            value(item);
        }
        code(opcode::kSetItems);
    }

    void write(const PickleGlobal&) { DDPRUN_ASSERT(false && "a class can't be written"); }

    /// torch._utils._rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks).
    void write(const PickledTensor& tensor) {
        global("torch._utils", "_rebuild_tensor_v2");
        code(opcode::kMark);
        storage(tensor);
        write(tensor.offset);
        integers(tensor.sizes);
        integers(tensor.strides);
        write(false);
        write(PickleDict{{}, true});
        code(opcode::kTuple);
        code(opcode::kReduce);
    }

    /// The persistent id ("storage", class, key, device, elements).
    void storage(const PickledTensor& tensor) {
        code(opcode::kMark);
        write(std::string("storage"));
        global("torch", tensor.storage_type);
        write(tensor.key);
        write(std::string("cpu"));
        write(tensor.storage_size);
        code(opcode::kTuple);
        code(opcode::kBinPersistentId);
    }

    void integers(const std::vector<std::int64_t>& values) {
        code(opcode::kMark);
        for (const std::int64_t each : values) {
            write(each);
        }
        code(opcode::kTuple);
    }

    void global(std::string_view module, std::string_view name) {
        code(opcode::kGlobal);
        out_.append(module);
        out_.push_back('\n');
        out_.append(name);
        out_.push_back('\n');
    }

    std::string& out_;
    ByteWriter bytes_;
};

}  // namespace

std::string write_pickle(const PickleValue& value) {
    constexpr char kProtocol = 2;
    std::string out;
    Writer writer(out);
    writer.code(opcode::kProto);
    writer.code(kProtocol);
    writer.value(value);
    writer.code(opcode::kStop);
    return out;
}

}  // namespace ddprun::trainer
