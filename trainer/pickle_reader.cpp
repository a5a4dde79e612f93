#include "proto/bytes.h"
#include "proto/limits.h"
#include "trainer/pickle.h"
#include "trainer/pickle_opcodes.h"

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace ddprun::trainer {

namespace {

constexpr std::size_t kTensorArgumentsMin = 4;
constexpr std::string_view kTorchModule = "torch.";

/// While reading, values are shared: the memo refers to containers that are still being filled.
/// Nodes refer only by index, so a cycle can be detected when the tree is built.
struct Node {
    enum class Kind { plain, list, tuple, dict, global, storage };

    Kind kind = Kind::plain;
    PickleValue plain;               ///< plain: a leaf (also a rebuilt tensor); global: its name
    std::vector<std::size_t> items;  ///< list, tuple, storage; dict: key, value, key, value, ...
    bool ordered = false;
};

class Reader {
public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}

    Result<PickleValue> run() {
        while (bytes_.ok() && error_.empty()) {
            const char code = static_cast<char>(bytes_.u8());
            if (!bytes_.ok()) {
                break;
            }
            if (code == opcode::kStop) {
                return finish();
            }
            step(code);
            if (nodes_.size() > limits::kPickleMemoMax || stack_.size() > limits::kPickleMemoMax) {
                return fail(Errc::limit_exceeded, "pickle: too many values");
            }
        }
        return fail(Errc::malformed, "pickle: " + (error_.empty() ? "it is cut off" : error_));
    }

private:
    static constexpr std::size_t kMarkSign = static_cast<std::size_t>(-1);

    void step(char code) {
        if (!step_leaf(code) && !step_container(code) && !step_memo(code) && !step_object(code)) {
            error_ = fmt::format(
                "opcode {:#04x} isn't known",
                static_cast<unsigned>(static_cast<unsigned char>(code))
            );
        }
    }

    bool step_leaf(char code) {
        switch (code) {
            case opcode::kProto: bytes_.u8(); return true;
            case opcode::kFrame: bytes_.u64(); return true;
            case opcode::kNone: push_leaf(PickleNone{}); return true;
            case opcode::kNewTrue: push_leaf(true); return true;
            case opcode::kNewFalse: push_leaf(false); return true;
            case opcode::kBinInt: push_leaf(std::int64_t{bytes_.i32()}); return true;
            case opcode::kBinInt1: push_leaf(std::int64_t{bytes_.u8()}); return true;
            case opcode::kBinInt2: push_leaf(std::int64_t{bytes_.u16()}); return true;
            case opcode::kLong1: push_long(); return true;
            case opcode::kBinFloat: push_double(); return true;
            case opcode::kBinUnicode:
            case opcode::kBinString: push_text(bytes_.u32()); return true;
            case opcode::kShortBinUnicode:
            case opcode::kShortBinString: push_text(bytes_.u8()); return true;
            default: return false;
        }
    }

    bool step_container(char code) {
        switch (code) {
            case opcode::kMark: stack_.push_back(kMarkSign); return true;
            case opcode::kEmptyList:
            case opcode::kEmptySet: push_container(Node::Kind::list, {}); return true;
            case opcode::kEmptyDict: push_container(Node::Kind::dict, {}); return true;
            case opcode::kEmptyTuple: push_container(Node::Kind::tuple, {}); return true;
            case opcode::kTuple: push_container(Node::Kind::tuple, pop_to_mark()); return true;
            case opcode::kTuple1: push_container(Node::Kind::tuple, pop_count(1)); return true;
            case opcode::kTuple2: push_container(Node::Kind::tuple, pop_count(2)); return true;
            case opcode::kTuple3: push_container(Node::Kind::tuple, pop_count(3)); return true;
            case opcode::kAppend: extend(Node::Kind::list, pop_count(1)); return true;
            case opcode::kAppends:
            case opcode::kAddItems: extend(Node::Kind::list, pop_to_mark()); return true;
            case opcode::kSetItem: extend(Node::Kind::dict, pop_count(2)); return true;
            case opcode::kSetItems: extend(Node::Kind::dict, pop_to_mark()); return true;
            default: return false;
        }
    }

    bool step_memo(char code) {
        switch (code) {
            case opcode::kBinPut: put(bytes_.u8()); return true;
            case opcode::kLongBinPut: put(bytes_.u32()); return true;
            case opcode::kMemoize: put(static_cast<std::uint32_t>(memo_.size())); return true;
            case opcode::kBinGet: get(bytes_.u8()); return true;
            case opcode::kLongBinGet: get(bytes_.u32()); return true;
            default: return false;
        }
    }

    bool step_object(char code) {
        switch (code) {
            case opcode::kGlobal: {
                const std::string module = line();
                push_global(module, line());
                return true;
            }
            case opcode::kStackGlobal: {
                const auto names = pop_count(2);
                if (names.size() == 2) {
                    push_global(text_of(names[0]), text_of(names[1]));
                }
                return true;
            }
            case opcode::kReduce:
            case opcode::kNewObj: reduce(); return true;
            case opcode::kBuild: pop_count(1); return true;  // attributes of an object
            case opcode::kBinPersistentId: persistent(); return true;
            default: return false;
        }
    }

    // ---- stack

    void push(Node node) {
        nodes_.push_back(std::move(node));
        stack_.push_back(nodes_.size() - 1);
    }

    template <class Leaf>
    void push_leaf(Leaf leaf) {
        push(Node{Node::Kind::plain, PickleValue{std::move(leaf)}, {}, false});
    }

    void push_container(Node::Kind kind, std::vector<std::size_t> items) {
        push(Node{kind, {}, std::move(items), false});
    }

    void push_global(const std::string& module, const std::string& name) {
        push(Node{Node::Kind::global, PickleValue{PickleGlobal{module + "." + name}}, {}, false});
    }

    void push_long() {
        const std::string_view bytes = bytes_.raw(bytes_.u8());
        if (bytes.size() > sizeof(std::int64_t)) {
            // Larger numbers (of Python's own random state, for one) are of no use to us.
            push_leaf(PickleNone{});
            return;
        }
        const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80U);
        std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
        for (std::size_t i = bytes.size(); i > 0; --i) {
            value = value << 8U | static_cast<unsigned char>(bytes[i - 1]);
        }
        push_leaf(static_cast<std::int64_t>(value));
    }

    void push_double() {
        std::uint64_t bits = 0;
        for (int i = 0; i < 8; ++i) {
            bits = bits << 8U | bytes_.u8();
        }
        push_leaf(std::bit_cast<double>(bits));
    }

    void push_text(std::uint64_t size) { push_leaf(std::string(bytes_.raw(size))); }

    std::vector<std::size_t> pop_count(std::size_t count) {
        std::vector<std::size_t> items;
        if (stack_.size() < count) {
            error_ = "a value is missing";
            return items;
        }
        items.assign(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
        for (const std::size_t item : items) {
            if (item == kMarkSign) {
                error_ = "a mark where a value should be";
                return {};
            }
        }
        stack_.resize(stack_.size() - count);
        return items;
    }

    std::vector<std::size_t> pop_to_mark() {
        std::size_t begin = stack_.size();
        while (begin > 0 && stack_[begin - 1] != kMarkSign) {
            --begin;
        }
        if (begin == 0) {
            error_ = "a mark is missing";
            return {};
        }
        std::vector<std::size_t> items(
            stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end()
        );
        stack_.resize(begin - 1);
        return items;
    }

    /// The value on top, or none with an error.
    std::optional<std::size_t> top() {
        if (stack_.empty() || stack_.back() == kMarkSign) {
            error_ = "a value is missing";
            return std::nullopt;
        }
        return stack_.back();
    }

    void extend(Node::Kind kind, const std::vector<std::size_t>& items) {
        const auto target = top();
        if (!target) {
            return;
        }
        Node& node = nodes_[*target];
        if (node.kind == Node::Kind::global) {
            return;  // the content of an object that we don't know
        }
        if (node.kind != kind || (kind == Node::Kind::dict && items.size() % 2 != 0)) {
            error_ = "items for what can't hold them";
            return;
        }
        node.items.insert(node.items.end(), items.begin(), items.end());
    }

    // ---- memo

    void put(std::uint32_t id) {
        if (const auto value = top()) {
            memo_[id] = *value;
        }
    }

    void get(std::uint32_t id) {
        const auto found = memo_.find(id);
        if (found == memo_.end()) {
            error_ = "a reference to nothing";
            return;
        }
        stack_.push_back(found->second);
    }

    // ---- objects

    std::string line() {
        std::string text;
        while (bytes_.ok()) {
            const char next = static_cast<char>(bytes_.u8());
            if (next == '\n' || text.size() > limits::kNameBytesMax) {
                break;
            }
            text.push_back(next);
        }
        return text;
    }

    [[nodiscard]] std::string text_of(std::size_t index) const {
        const auto* const text = nodes_[index].plain.as<std::string>();
        return text != nullptr ? *text : "";
    }

    [[nodiscard]] std::optional<std::int64_t> integer_of(std::size_t index) const {
        const auto* const number = nodes_[index].plain.as<std::int64_t>();
        return number != nullptr ? std::optional(*number) : std::nullopt;
    }

    [[nodiscard]] std::string name_of(std::size_t index) const {
        const auto* const global = nodes_[index].plain.as<PickleGlobal>();
        return global != nullptr ? global->name : "";
    }

    void reduce() {
        const auto operands = pop_count(2);
        if (operands.size() != 2) {
            return;
        }
        const std::string name = name_of(operands[0]);
        const std::vector<std::size_t> arguments = nodes_[operands[1]].items;
        if (name == "collections.OrderedDict") {
            push(Node{Node::Kind::dict, {}, {}, true});
        } else if (name == "torch._utils._rebuild_tensor_v2") {
            rebuild_tensor(arguments);
        } else if (name == "torch._utils._rebuild_parameter" && !arguments.empty()) {
            stack_.push_back(arguments[0]);
        } else {
            push(Node{Node::Kind::global, PickleValue{PickleGlobal{name}}, {}, false});
        }
    }

    void persistent() {
        const auto id = pop_count(1);
        if (id.empty()) {
            return;
        }
        const std::vector<std::size_t> parts = nodes_[id[0]].items;
        if (parts.size() != 5 || text_of(parts[0]) != "storage") {
            error_ = "a reference that isn't to a storage";
            return;
        }
        push(Node{Node::Kind::storage, {}, parts, false});
    }

    [[nodiscard]] std::optional<std::vector<std::int64_t>> integers_of(std::size_t index) const {
        std::vector<std::int64_t> values;
        for (const std::size_t item : nodes_[index].items) {
            const auto value = integer_of(item);
            if (!value) {
                return std::nullopt;
            }
            values.push_back(*value);
        }
        return values;
    }

    void rebuild_tensor(const std::vector<std::size_t>& arguments) {
        if (arguments.size() < kTensorArgumentsMin ||
            nodes_[arguments[0]].kind != Node::Kind::storage) {
            error_ = "a tensor without a storage";
            return;
        }
        const Node& storage = nodes_[arguments[0]];
        const std::string type = name_of(storage.items[1]);
        const auto storage_size = integer_of(storage.items[4]);
        const auto offset = integer_of(arguments[1]);
        auto sizes = integers_of(arguments[2]);
        auto strides = integers_of(arguments[3]);
        if (!type.starts_with(kTorchModule) || !storage_size || !offset || !sizes || !strides) {
            error_ = "a tensor whose description makes no sense";
            return;
        }
        push_leaf(PickledTensor{
            type.substr(kTorchModule.size()),
            text_of(storage.items[2]),
            *storage_size,
            *offset,
            std::move(*sizes),
            std::move(*strides)});
    }

    // ---- result

    Result<PickleValue> finish() {
        const auto root = top();
        if (!root) {
            return fail(Errc::malformed, "pickle: " + error_);
        }
        std::size_t budget = limits::kPickleMemoMax;
        return build(*root, 0, budget);
    }

    /// The tree below a node. Shared nodes are copied; depth and `budget` bound cycles and blow-up.
    Result<PickleValue> build(std::size_t index, int depth, std::size_t& budget) const {
        if (depth > limits::kPickleDepthMax || budget == 0) {
            return fail(Errc::limit_exceeded, "pickle: nested too deeply or too large");
        }
        --budget;
        const Node& node = nodes_[index];
        if (node.kind == Node::Kind::plain || node.kind == Node::Kind::global) {
            return node.plain;
        }
        if (node.kind == Node::Kind::storage) {
            return PickleValue{PickleGlobal{"storage"}};
        }
        std::vector<PickleValue> items;
        for (const std::size_t item : node.items) {
            auto value = build(item, depth + 1, budget);
            if (!value) {
                return value;
            }
            items.push_back(std::move(*value));
        }
        if (node.kind == Node::Kind::list) {
            return PickleValue{std::move(items)};
        }
        if (node.kind == Node::Kind::tuple) {
            return PickleValue{PickleTuple{std::move(items)}};
        }
        PickleDict dict;
        dict.ordered = node.ordered;
        for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
            dict.items.push_back({std::move(items[i]), std::move(items[i + 1])});
        }
        return PickleValue{std::move(dict)};
    }

    ByteReader bytes_;
    std::vector<Node> nodes_;
    std::vector<std::size_t> stack_;
    std::map<std::uint32_t, std::size_t> memo_;
    std::string error_;
};

}  // namespace

const PickleValue* PickleDict::find(std::string_view key) const {
    for (const auto& [name, value] : items) {
        const auto* const text = name.as<std::string>();
        if (text != nullptr && *text == key) {
            return &value;
        }
    }
    return nullptr;
}

Result<PickleValue> read_pickle(std::string_view bytes) {
    if (bytes.size() > limits::kPickleBytesMax) {
        return fail(Errc::limit_exceeded, "pickle: larger than any state of a model");
    }
    return Reader(bytes).run();
}

}  // namespace ddprun::trainer
