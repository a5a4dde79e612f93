// The opcodes of Python's pickle (Lib/pickletools.py, protocols 0 to 5) that torch.save produces.
#pragma once

namespace ddprun::trainer::opcode {

inline constexpr char kProto = '\x80';
inline constexpr char kStop = '.';
inline constexpr char kMark = '(';
inline constexpr char kNone = 'N';
inline constexpr char kNewTrue = '\x88';
inline constexpr char kNewFalse = '\x89';
inline constexpr char kBinInt = 'J';
inline constexpr char kBinInt1 = 'K';
inline constexpr char kBinInt2 = 'M';
inline constexpr char kLong1 = '\x8a';
inline constexpr char kBinFloat = 'G';
inline constexpr char kBinUnicode = 'X';
inline constexpr char kShortBinUnicode = '\x8c';
inline constexpr char kShortBinString = 'U';
inline constexpr char kBinString = 'T';
inline constexpr char kEmptyTuple = ')';
inline constexpr char kTuple = 't';
inline constexpr char kTuple1 = '\x85';
inline constexpr char kTuple2 = '\x86';
inline constexpr char kTuple3 = '\x87';
inline constexpr char kEmptyList = ']';
inline constexpr char kAppend = 'a';
inline constexpr char kAppends = 'e';
inline constexpr char kEmptyDict = '}';
inline constexpr char kSetItem = 's';
inline constexpr char kSetItems = 'u';
inline constexpr char kEmptySet = '\x8f';
inline constexpr char kAddItems = '\x90';
inline constexpr char kBinPut = 'q';
inline constexpr char kLongBinPut = 'r';
inline constexpr char kBinGet = 'h';
inline constexpr char kLongBinGet = 'j';
inline constexpr char kMemoize = '\x94';
inline constexpr char kFrame = '\x95';
inline constexpr char kGlobal = 'c';
inline constexpr char kStackGlobal = '\x93';
inline constexpr char kReduce = 'R';
inline constexpr char kNewObj = '\x81';
inline constexpr char kBuild = 'b';
inline constexpr char kBinPersistentId = 'Q';

}  // namespace ddprun::trainer::opcode
