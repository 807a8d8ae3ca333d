// Runs a saved program from C++, through PJRT's C API: no Python, no JAX.
//
//   c++ -std=c++17 -I INCLUDE main.cc -ldl -o pjrt_host
//   ./pjrt_host PLUGIN.so PROGRAM.mlirbc 3:0.1,0.5,0.9 2x2:1,2,3,4
//   ./pjrt_host PLUGIN.so PROGRAM.mlirbc@forces 3:0.1,0.5,0.9
//
// PLUGIN is any PJRT plug-in (CPU, GPU, TPU), PROGRAM what `pullback derive … -o x.mlirbc` wrote;
// @NAME chooses one of its entries, by default the first.
// Each argument is a float32 array: its shape, and its elements in rows. (A plug-in takes its bytes
// for another type of that size without a word.) Each result, float32 too, is printed as a line of
// numbers. INCLUDE holds XLA's header xla/pjrt/c/pjrt_c_api.h.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "xla/pjrt/c/pjrt_c_api.h"

namespace {

const PJRT_Api* api = nullptr;

// CompileOptionsProto: executable_build_options { device_ordinal: -1 num_replicas: 1
// num_partitions: 1 }.
const std::string kCompileOptions("\x1a\x0f\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x01\x28\x01", 17);

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "pjrt_host: %s\n", what.c_str());
  std::exit(1);
}

// Arguments of an API function, zeroed, with the size that tells their version.
template <typename Args>
Args Make(size_t size) {
  Args args{};
  args.struct_size = size;
  return args;
}
#define ARGS(name) Make<name##_Args>(name##_Args_STRUCT_SIZE)

void Check(PJRT_Error* error) {
  if (error == nullptr) return;
  auto message = ARGS(PJRT_Error_Message);
  message.error = error;
  api->PJRT_Error_Message(&message);
  Fail(std::string(message.message, message.message_size));
}

void Await(PJRT_Event* event) {
  auto await = ARGS(PJRT_Event_Await);
  await.event = event;
  Check(api->PJRT_Event_Await(&await));
}

struct Array {
  std::vector<int64_t> shape;
  std::vector<float> elements;
};

Array Parse(const std::string& text) {
  Array array;
  const size_t colon = text.find(':');
  if (colon == std::string::npos) Fail("an argument is SHAPE:ELEMENTS, such as 2x2:1,2,3,4");
  std::stringstream sizes(text.substr(0, colon)), elements(text.substr(colon + 1));
  for (std::string part; std::getline(sizes, part, 'x');) array.shape.push_back(std::stoll(part));
  for (std::string part; std::getline(elements, part, ',');) array.elements.push_back(std::stof(part));
  size_t count = 1;
  for (int64_t size : array.shape) count *= size;
  if (count != array.elements.size()) Fail("the elements of " + text + " do not fill its shape");
  return array;
}

void Load(const char* plugin) {
  void* library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail(dlerror());
  auto get = reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"));
  if (get == nullptr) Fail("the library is no PJRT plug-in: it has no GetPjrtApi");
  api = get();
  auto initialize = ARGS(PJRT_Plugin_Initialize);
  Check(api->PJRT_Plugin_Initialize(&initialize));
}

// Reads an integer of MLIR's bytecode: the zeros that its first byte ends with tell its length.
uint64_t ReadNumber(const std::string& code, size_t* place) {
  const uint8_t first = *place < code.size() ? code[*place] : 0;
  size_t more = 0;
  while (more < 8 && !(first >> more & 1)) ++more;
  if (*place + more >= code.size()) Fail("the program ends early");
  uint64_t value = 0;
  for (size_t i = more; i > 0; --i) value = value << 8 | static_cast<uint8_t>(code[*place + i]);
  *place += more + 1;
  return more == 8 ? value : (value << 8 | first) >> (more + 1);
}

// PJRT runs @main. A file has each string once, and names functions by the numbers of strings: so
// the entry runs when its name and "main" change places, with their sizes, which stand in reverse.
void MakeMain(std::string* code, const std::string& entry) {
  size_t place = code->find('\0', 5) + 1;  // behind the magic number, a version, who wrote it
  if (code->compare(0, 4, "ML\xefR") != 0 || place == 0) Fail("the program is no MLIR bytecode");
  while (true) {  // sections: a number and a flag, a length, and where the flag is set, padding
    if (place >= code->size()) Fail("the program has no strings");
    const uint8_t kind = (*code)[place++];
    const uint64_t length = ReadNumber(*code, &place);
    if (kind & 0x80) {
      const uint64_t unit = ReadNumber(*code, &place);
      if (unit == 0) Fail("the program is damaged");
      place += (unit - place % unit) % unit;
    }
    if ((kind & 0x7f) == 0) break;
    place += length;
  }
  std::vector<uint64_t> sizes(ReadNumber(*code, &place));
  std::vector<std::string> written(sizes.size()), strings(sizes.size());
  const size_t start = place;
  for (size_t i = sizes.size(); i-- > 0;) {
    const size_t from = place;
    sizes[i] = ReadNumber(*code, &place);
    written[i] = code->substr(from, place - from);
  }
  size_t main = sizes.size(), other = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > code->size() - place) Fail("the program ends early");
    strings[i] = code->substr(place, sizes[i]);
    place += sizes[i];
    if (strings[i] == std::string("main", 5)) main = i;
    if (strings[i] == std::string(entry.c_str(), entry.size() + 1)) other = i;
  }
  if (main == sizes.size() || other == sizes.size()) Fail("the program has no entry " + entry);
  std::swap(written[main], written[other]);
  std::swap(strings[main], strings[other]);
  std::string section;
  for (size_t i = sizes.size(); i-- > 0;) section += written[i];
  for (const std::string& each : strings) section += each;
  code->replace(start, section.size(), section);
}

PJRT_LoadedExecutable* Compile(PJRT_Client* client, const std::string& program_and_entry) {
  const size_t at = program_and_entry.rfind('@');
  const std::string path = program_and_entry.substr(0, at);
  std::ifstream file(path, std::ios::binary);
  if (!file) Fail("cannot read " + path);
  std::string code((std::istreambuf_iterator<char>(file)), {});
  if (at != std::string::npos) MakeMain(&code, program_and_entry.substr(at + 1));
  const std::string format = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = code.data();
  program.code_size = code.size();
  program.format = format.data();
  program.format_size = format.size();
  auto compile = ARGS(PJRT_Client_Compile);
  compile.client = client;
  compile.program = &program;
  compile.compile_options = kCompileOptions.data();
  compile.compile_options_size = kCompileOptions.size();
  Check(api->PJRT_Client_Compile(&compile));
  return compile.executable;
}

PJRT_Buffer* ToDevice(PJRT_Client* client, PJRT_Device* device, const Array& array) {
  auto copy = ARGS(PJRT_Client_BufferFromHostBuffer);
  copy.client = client;
  copy.data = array.elements.data();
  copy.type = PJRT_Buffer_Type_F32;
  copy.dims = array.shape.data();
  copy.num_dims = array.shape.size();
  copy.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  copy.device = device;
  Check(api->PJRT_Client_BufferFromHostBuffer(&copy));
  Await(copy.done_with_host_buffer);
  return copy.buffer;
}

std::vector<float> ToHost(PJRT_Buffer* buffer) {
  auto element = ARGS(PJRT_Buffer_ElementType);
  element.buffer = buffer;
  Check(api->PJRT_Buffer_ElementType(&element));
  if (element.type != PJRT_Buffer_Type_F32) Fail("a result is no float32 array");
  auto copy = ARGS(PJRT_Buffer_ToHostBuffer);
  copy.src = buffer;
  Check(api->PJRT_Buffer_ToHostBuffer(&copy));  // asks for the size
  std::vector<float> elements(copy.dst_size / sizeof(float));
  copy.dst = elements.data();
  Check(api->PJRT_Buffer_ToHostBuffer(&copy));
  Await(copy.event);
  return elements;
}

size_t NumOutputs(PJRT_LoadedExecutable* loaded) {
  auto get = ARGS(PJRT_LoadedExecutable_GetExecutable);
  get.loaded_executable = loaded;
  Check(api->PJRT_LoadedExecutable_GetExecutable(&get));
  auto count = ARGS(PJRT_Executable_NumOutputs);
  count.executable = get.executable;
  Check(api->PJRT_Executable_NumOutputs(&count));
  return count.num_outputs;
}

std::vector<PJRT_Buffer*> Execute(PJRT_LoadedExecutable* loaded, std::vector<PJRT_Buffer*> inputs) {
  std::vector<PJRT_Buffer*> outputs(NumOutputs(loaded));
  PJRT_Buffer* const* argument_list = inputs.data();
  PJRT_Buffer** output_list = outputs.data();
  PJRT_ExecuteOptions options{};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  auto execute = ARGS(PJRT_LoadedExecutable_Execute);
  execute.executable = loaded;
  execute.options = &options;
  execute.argument_lists = &argument_list;
  execute.num_devices = 1;
  execute.num_args = inputs.size();
  execute.output_lists = &output_list;
  Check(api->PJRT_LoadedExecutable_Execute(&execute));
  return outputs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) Fail("usage: pjrt_host PLUGIN.so PROGRAM.mlirbc [SHAPE:ELEMENTS ...]");
  Load(argv[1]);
  auto create = ARGS(PJRT_Client_Create);
  Check(api->PJRT_Client_Create(&create));
  auto devices = ARGS(PJRT_Client_AddressableDevices);
  devices.client = create.client;
  Check(api->PJRT_Client_AddressableDevices(&devices));
  if (devices.num_addressable_devices == 0) Fail("the plug-in finds no device");

  std::vector<Array> arrays;
  for (int i = 3; i < argc; ++i) arrays.push_back(Parse(argv[i]));
  std::vector<PJRT_Buffer*> inputs;
  for (const Array& array : arrays)
    inputs.push_back(ToDevice(create.client, devices.addressable_devices[0], array));
  for (PJRT_Buffer* output : Execute(Compile(create.client, argv[2]), inputs)) {
    for (float element : ToHost(output)) std::printf("%.9g ", element);
    std::printf("\n");
  }
}
